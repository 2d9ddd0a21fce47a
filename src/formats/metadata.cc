#include "formats/metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/utf8.h"
#include "formats/number_types.h"

namespace llorch::formats {
namespace {

struct ElementInfo {
  std::string_view name;
  std::size_t bytes;
};
// In enum order.
constexpr std::array<ElementInfo, 13> kElements = {{
    {"u8", 1},
    {"i8", 1},
    {"u16", 2},
    {"i16", 2},
    {"u32", 4},
    {"i32", 4},
    {"f32", 4},
    {"bool", 1},
    {"string", 0},
    {"array", 0},
    {"u64", 8},
    {"i64", 8},
    {"f64", 8},
}};

constexpr std::uint64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

// "the string 'llama'", "an array of 3 u32": what an error says it found.
std::string describe(const Value& value) {
  struct Describe {
    std::string operator()(bool flag) const { return fmt::format("the flag {}", flag); }
    std::string operator()(std::int64_t number) const {
      return fmt::format("the integer {}", number);
    }
    std::string operator()(std::uint64_t number) const {
      return fmt::format("the integer {}", number);
    }
    std::string operator()(double number) const { return fmt::format("the number {}", number); }
    std::string operator()(const std::string& text) const {
      constexpr std::size_t kShownBytes = 60;
      if (text.size() <= kShownBytes) return fmt::format("the string {}", base::quoted(text));
      return fmt::format("a string of {} bytes", text.size());
    }
    std::string operator()(const ArrayView& array) const {
      return fmt::format("an array of {} {}", array.count, name(array.type));
    }
  };
  return std::visit(Describe{}, value);
}

Error wrong_type(std::string_view key, std::string_view expected, const Value& found) {
  return {ErrorCode::Corrupt, fmt::format("key {}: expected {}, found {}", base::quoted(key),
                                          expected, describe(found))};
}

// The value of `key`, or an error that says what was hoped for.
Result<const Value*> require(const Metadata& metadata, std::string_view key,
                             std::string_view expected) {
  const Value* value = metadata.find(key);
  if (value == nullptr) {
    return Error{ErrorCode::NotFound,
                 fmt::format("key {} is absent: expected {}", base::quoted(key), expected)};
  }
  return value;
}

// The array under `key`; for readers that then judge its element type.
Result<ArrayView> require_array(const Metadata& metadata, std::string_view key,
                                std::string_view expected) {
  const Result<const Value*> value = require(metadata, key, expected);
  if (!value.ok()) return value.error();
  const ArrayView* array = std::get_if<ArrayView>(*value);
  if (array == nullptr) return wrong_type(key, expected, **value);
  return *array;
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class Stored, class Out>
std::vector<Out> decode(const ArrayView& array) {
  CHECK(array.count <= array.bytes.size() / sizeof(Stored), "an array view shorter than its count");
  std::vector<Out> out(array.count);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<Out>(load<Stored>(array.bytes.data() + i * sizeof(Stored)));
  }
  return out;
}

// Elements of any integer type (or flags, as 0 and 1); false for the other types.
template <class Out>
bool decode_integers(const ArrayView& array, std::vector<Out>& out) {
  bool are_integers = false;
  const ElementType type = array.type == ElementType::Bool ? ElementType::U8 : array.type;
  visit_number(type, [&](auto number) {
    if constexpr (std::is_integral_v<decltype(number)>) {
      out = decode<decltype(number), Out>(array);
      are_integers = true;
    }
  });
  return are_integers;
}

}  // namespace

std::vector<std::byte> pack_texts(std::span<const std::string> texts) {
  std::vector<std::byte> packed;
  const auto append = [&packed](std::span<const std::byte> bytes) {
    packed.insert(packed.end(), bytes.begin(), bytes.end());
  };
  for (const std::string& text : texts) {
    const std::uint64_t length = text.size();
    append(std::as_bytes(std::span(&length, 1)));
    append(std::as_bytes(std::span(text)));
  }
  return packed;
}

std::string_view name(ElementType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kElements.size() ? kElements[index].name : "unknown";
}

std::size_t element_bytes(ElementType type) {
  const auto index = static_cast<std::size_t>(type);
  return index < kElements.size() ? kElements[index].bytes : 0;
}

Status Metadata::add(std::string key, Value value, std::optional<ElementType> stored) {
  const auto [at, added] = entries_.try_emplace(std::move(key));
  if (!added)
    return Error{ErrorCode::Corrupt, fmt::format("key {} appears twice", base::quoted(at->first))};
  at->second = std::move(value);
  if (stored) stored_types_.emplace(at->first, *stored);
  return ok_status();
}

std::optional<ElementType> Metadata::stored_type(std::string_view key) const {
  const auto found = stored_types_.find(key);
  return found == stored_types_.end() ? std::nullopt : std::optional(found->second);
}

std::span<const std::byte> Metadata::adopt(std::vector<std::byte> bytes) {
  return adopted_.emplace_back(std::move(bytes));
}

const Value* Metadata::find(std::string_view key) const {
  const auto at = entries_.find(key);
  return at == entries_.end() ? nullptr : &at->second;
}

Result<std::int64_t> Metadata::integer(std::string_view key) const {
  const Result<const Value*> value = require(*this, key, "an integer");
  if (!value.ok()) return value.error();
  if (const auto* number = std::get_if<std::int64_t>(*value)) return *number;
  if (const auto* number = std::get_if<std::uint64_t>(*value)) {
    if (*number > kInt64Max) return wrong_type(key, "an integer below 2^63", **value);
    return static_cast<std::int64_t>(*number);
  }
  return wrong_type(key, "an integer", **value);
}

Result<double> Metadata::number(std::string_view key) const {
  const Result<const Value*> value = require(*this, key, "a number");
  if (!value.ok()) return value.error();
  if (const auto* number = std::get_if<double>(*value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(*value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<std::uint64_t>(*value)) return static_cast<double>(*number);
  return wrong_type(key, "a number", **value);
}

Result<bool> Metadata::flag(std::string_view key) const {
  const Result<const Value*> value = require(*this, key, "true or false");
  if (!value.ok()) return value.error();
  if (const bool* flag = std::get_if<bool>(*value)) return *flag;
  return wrong_type(key, "true or false", **value);
}

Result<std::string_view> Metadata::text(std::string_view key) const {
  const Result<const Value*> value = require(*this, key, "a string");
  if (!value.ok()) return value.error();
  if (const auto* text = std::get_if<std::string>(*value)) return std::string_view(*text);
  return wrong_type(key, "a string", **value);
}

// In the three below an empty array is an array of whatever was asked for: JSON's [] has no element
// type.

Result<std::vector<std::int64_t>> Metadata::integers(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of integers";
  const Result<ArrayView> array = require_array(*this, key, kExpected);
  if (!array.ok()) return array.error();
  std::vector<std::int64_t> out;
  if (array->count == 0) return out;
  if (!decode_integers(*array, out)) return wrong_type(key, kExpected, *array);
  const bool wrapped =
      array->type == ElementType::U64 &&
      std::any_of(out.begin(), out.end(), [](std::int64_t value) { return value < 0; });
  if (wrapped) return wrong_type(key, "an array of integers below 2^63", *array);
  return out;
}

Result<std::vector<double>> Metadata::numbers(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of numbers";
  const Result<ArrayView> array = require_array(*this, key, kExpected);
  if (!array.ok()) return array.error();
  std::vector<double> out;
  if (array->count == 0) return out;
  if (array->type == ElementType::F32) return decode<float, double>(*array);
  if (array->type == ElementType::F64) return decode<double, double>(*array);
  if (array->type == ElementType::Bool || !decode_integers(*array, out)) {
    return wrong_type(key, kExpected, *array);
  }
  return out;
}

Result<std::vector<std::string_view>> Metadata::texts(std::string_view key) const {
  constexpr std::string_view kExpected = "an array of strings";
  const Result<ArrayView> array = require_array(*this, key, kExpected);
  if (!array.ok()) return array.error();
  std::vector<std::string_view> out;
  if (array->count == 0) return out;
  if (array->type != ElementType::String) return wrong_type(key, kExpected, *array);
  out.reserve(array->count);
  std::span<const std::byte> rest = array->bytes;
  for (std::uint64_t i = 0; i < array->count; ++i) {
    CHECK(rest.size() >= sizeof(std::uint64_t), "a string array view that nobody walked");
    const auto length = load<std::uint64_t>(rest.data());
    rest = rest.subspan(sizeof(std::uint64_t));
    CHECK(length <= rest.size(), "a string array view that nobody walked");
    out.emplace_back(reinterpret_cast<const char*>(rest.data()), length);
    rest = rest.subspan(length);
  }
  return out;
}

Result<std::int64_t> Metadata::integer_or(std::string_view key, std::int64_t fallback) const {
  return contains(key) ? integer(key) : fallback;
}

Result<double> Metadata::number_or(std::string_view key, double fallback) const {
  return contains(key) ? number(key) : fallback;
}

Result<bool> Metadata::flag_or(std::string_view key, bool fallback) const {
  return contains(key) ? flag(key) : fallback;
}

}  // namespace llorch::formats
