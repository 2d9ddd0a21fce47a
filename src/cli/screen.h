// What kind of terminal there is. Private to cli/.
#pragma once

#include <string_view>

#include "base/home.h"

namespace llorch::cli {

// It shows escape sequences as they are, so no screen can be drawn on it.
inline bool has_dumb_terminal(const base::Environment& environment) {
  const char* kind = environment("TERM");
  return kind != nullptr && std::string_view(kind) == "dumb";
}

}  // namespace llorch::cli
