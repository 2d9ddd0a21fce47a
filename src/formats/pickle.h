// A Python pickle (protocols 2 to 5) as a plain tree of values. Nothing in it is ever run: the only
// names it may refer to are those in a fixed list, and calling one of them makes a Call value that
// says so, no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::formats {

using PickleIndex = std::uint32_t;  // of a value in Pickle::values

struct PickleValue {
  enum class Kind : std::uint8_t {
    None,
    Bool,          // integer: 0 or 1
    Int,           // integer; those beyond 64 bits are Bytes
    Float,         // number
    String,        // text, valid UTF-8
    Bytes,         // text
    Tuple,         // items
    List,          // items
    Dict,          // items: key, value, key, value, …; OrderedDict too
    Global,        // text: "module.name", one of the allowed
    Call,          // items: the Global that would be called and the Tuple of arguments
    PersistentId,  // items: the id
  };
  Kind kind = Kind::None;
  std::int64_t integer = 0;
  double number = 0;
  std::string_view text = {};  // points into the pickle or into the list of allowed names
  std::vector<PickleIndex> items = {};
};
std::string_view name(PickleValue::Kind kind);

// Values refer to each other by index and may be shared or even cyclic, as in Python: a reader that
// descends must bound its own depth and work.
struct Pickle {
  std::vector<PickleValue> values;
  PickleIndex root = 0;

  const PickleValue& operator[](PickleIndex index) const { return values[index]; }
};

// The views in the result point into `bytes`. Time and memory grow linearly with its size. Refused:
// a name that is not in the list (the error tells it), opcodes that weight files do not use, more
// than kPickleValuesMax values, anything behind the end.
inline constexpr std::size_t kPickleValuesMax = std::size_t{1} << 21;
Result<Pickle> read_pickle(std::span<const std::byte> bytes);

}  // namespace llorch::formats
