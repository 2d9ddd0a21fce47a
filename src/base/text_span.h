// A stretch of a text, in bytes.
#pragma once

#include <cstddef>

namespace llorch::base {

struct TextSpan {
  std::size_t begin = 0, end = 0;  // [begin, end)
  bool operator==(const TextSpan&) const = default;
};

}  // namespace llorch::base
