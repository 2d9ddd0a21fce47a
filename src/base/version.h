// The version of this build, as every program reports it.
#pragma once

#include <string_view>

namespace llorch::base {

std::string_view version();  // "0.1.0"

}  // namespace llorch::base
