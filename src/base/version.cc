#include "base/version.h"

namespace llorch::base {

std::string_view version() {
  return LLORCH_VERSION;  // given by CMake to this file alone
}

}  // namespace llorch::base
