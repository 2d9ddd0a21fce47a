// The numbers of a file's metadata as types of C++. Private to formats/.
#pragma once

#include <cstdint>

#include "formats/metadata.h"

namespace llorch::formats {

// Calls `visit` with a number of the type that `type` stores; false where it stores something else:
// flags, strings, arrays.
template <class Visit>
bool visit_number(ElementType type, const Visit& visit) {
  using enum ElementType;
  const auto is = [&](ElementType one, auto number) {
    if (type == one) visit(number);
    return type == one;
  };
  return is(U8, std::uint8_t()) || is(I8, std::int8_t()) || is(U16, std::uint16_t()) ||
         is(I16, std::int16_t()) || is(U32, std::uint32_t()) || is(I32, std::int32_t()) ||
         is(U64, std::uint64_t()) || is(I64, std::int64_t()) || is(F32, float()) ||
         is(F64, double());
}

}  // namespace llorch::formats
