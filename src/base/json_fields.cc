#include "base/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace llorch::json {
namespace {

constexpr double kTwoTo53 = 9007199254740992.0;

// The value as an int64 when it is one exactly; doubles only where they hold every integer.
std::optional<std::int64_t> exact_integer(const Value& value) {
  if (const std::int64_t* number = value.if_int64()) return *number;
  if (const std::uint64_t* number = value.if_uint64()) {
    if (std::in_range<std::int64_t>(*number)) return static_cast<std::int64_t>(*number);
    return std::nullopt;
  }
  const double* number = value.if_double();
  if (number == nullptr || std::abs(*number) > kTwoTo53 || std::trunc(*number) != *number) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*number);
}

// A name that somebody made up, as a message may show it.
std::string shorten(std::string_view key) {
  constexpr std::size_t kShownBytes = 100;
  if (key.size() <= kShownBytes) return std::string(key);
  std::size_t end = kShownBytes;
  while ((static_cast<unsigned char>(key[end]) & 0xc0U) == 0x80U) --end;  // a character stays whole
  return std::string(key.substr(0, end)) + "…";
}

std::string range_text(const StringRange& range) {
  if (range.max_bytes == std::numeric_limits<std::size_t>::max()) {
    return fmt::format("at least {} bytes", range.min_bytes);
  }
  return fmt::format("{}..{} bytes", range.min_bytes, range.max_bytes);
}

std::string range_text(const NumberRange& range) {
  const NumberRange all;
  std::string low = fmt::format("{} {}", range.above_min ? ">" : ">=", range.min);
  if (range.max == all.max) return low;
  if (range.min == all.min) return fmt::format("<= {}", range.max);
  if (range.above_min) return fmt::format("{} and <= {}", low, range.max);
  return fmt::format("{}..{}", range.min, range.max);
}

// "in 0..2", ">= 0".
std::string within(std::string_view range) {
  const bool is_open = range.starts_with('>') || range.starts_with('<');
  return fmt::format("{}{}", is_open ? "" : "in ", range);
}

std::string range_text(std::int64_t min, std::int64_t max) {
  if (max == std::numeric_limits<std::int64_t>::max()) return fmt::format(">= {}", min);
  return fmt::format("{}..{}", min, max);
}

}  // namespace

FieldReader::FieldReader(const Object& object, std::string prefix)
    : object_(object), prefix_(std::move(prefix)), known_(object.size()) {}

std::string FieldReader::required_string(std::string_view field, StringRange range) {
  return read_string(field, take_required(field), range).value_or(std::string());
}

std::optional<std::string> FieldReader::optional_string(std::string_view field, StringRange range) {
  return read_string(field, take(field), range);
}

std::int64_t FieldReader::required_integer(std::string_view field, std::int64_t min,
                                           std::int64_t max) {
  return read_integer(field, take_required(field), min, max).value_or(0);
}

std::optional<std::int64_t> FieldReader::optional_integer(std::string_view field, std::int64_t min,
                                                          std::int64_t max) {
  return read_integer(field, take(field), min, max);
}

std::optional<std::uint64_t> FieldReader::optional_unsigned(std::string_view field) {
  const Value* value = take(field);
  if (value == nullptr) return std::nullopt;
  if (const std::uint64_t* number = value->if_uint64()) return *number;
  const std::optional<std::int64_t> number = exact_integer(*value);
  if (number && *number >= 0) return static_cast<std::uint64_t>(*number);
  if (number || value->is_double()) {
    fail_value(field, *value, "0..2^64-1", "must be an integer from 0 to 2^64-1");
  } else {
    fail_type(field, *value, "an integer");
  }
  return std::nullopt;
}

double FieldReader::required_number(std::string_view field, NumberRange range) {
  return read_number(field, take_required(field), range).value_or(0);
}

std::optional<double> FieldReader::optional_number(std::string_view field, NumberRange range) {
  return read_number(field, take(field), range);
}

bool FieldReader::required_bool(std::string_view field) {
  return read_bool(field, take_required(field)).value_or(false);
}

std::optional<bool> FieldReader::optional_bool(std::string_view field) {
  return read_bool(field, take(field));
}

std::optional<std::vector<std::string>> FieldReader::optional_strings(std::string_view field,
                                                                      std::size_t max_count,
                                                                      StringRange each) {
  const Array* array = optional_array(field);
  if (array == nullptr) return std::nullopt;
  if (array->size() > max_count) {
    fail(field, fmt::format("at most {} entries", max_count),
         fmt::format("has {} entries, more than the {} allowed", array->size(), max_count));
    return std::nullopt;
  }
  std::vector<std::string> texts;
  for (const Value& entry : *array) {
    const std::string entry_field = fmt::format("{}[{}]", field, texts.size());
    texts.push_back(read_string(entry_field, &entry, each).value_or(std::string()));
  }
  return texts;
}

const Object* FieldReader::required_object(std::string_view field) {
  return read_object(field, take_required(field));
}
const Object* FieldReader::optional_object(std::string_view field) {
  return read_object(field, take(field));
}
const Array* FieldReader::required_array(std::string_view field) {
  return read_array(field, take_required(field));
}
const Array* FieldReader::optional_array(std::string_view field) {
  return read_array(field, take(field));
}
const Value* FieldReader::optional_value(std::string_view field) {
  return take(field);
}

void FieldReader::ignore(std::string_view field) {
  take(field);
}

void FieldReader::ignore_others() {
  known_.assign(known_.size(), true);
}

void FieldReader::fail(std::string_view field, std::string constraint, std::string message) {
  errors_.push_back({prefix_ + std::string(field), std::move(constraint), std::move(message), {}});
}

void FieldReader::add(std::vector<FieldError> errors) {
  for (FieldError& error : errors) errors_.push_back(std::move(error));
}

std::vector<FieldError> FieldReader::finish() {
  std::size_t index = 0;
  for (const auto& field : object_) {
    const std::string_view key = view(field.key());
    if (!known_[index++]) fail(shorten(key), "known field", "is not a field that is known here");
  }
  return std::exchange(errors_, {});
}

const Value* FieldReader::take(std::string_view field) {
  const auto found = object_.find({field.data(), field.size()});
  if (found == object_.end()) return nullptr;
  known_[static_cast<std::size_t>(found - object_.begin())] = true;
  return found->value().is_null() ? nullptr : &found->value();
}

const Value* FieldReader::take_required(std::string_view field) {
  const Value* value = take(field);
  if (value == nullptr) fail(field, "required", "is required");
  return value;
}

void FieldReader::fail_value(std::string_view field, const Value& value, std::string constraint,
                             std::string message) {
  fail(field, std::move(constraint), std::move(message));
  if (value.is_number() || value.is_bool()) errors_.back().value = value;
}

void FieldReader::fail_type(std::string_view field, const Value& value, std::string_view expected) {
  fail_value(field, value, std::string(expected.substr(expected.find(' ') + 1)),
             fmt::format("must be {}, not {}", expected, kind_name(value)));
}

std::optional<std::string> FieldReader::read_string(std::string_view field, const Value* value,
                                                    StringRange range) {
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    fail_type(field, *value, "a string");
    return std::nullopt;
  }
  const std::string_view text = view(value->get_string());
  if (text.size() < range.min_bytes || text.size() > range.max_bytes) {
    const std::string constraint = range_text(range);
    fail(field, constraint, fmt::format("must have {}, has {}", constraint, text.size()));
    return std::nullopt;
  }
  return std::string(text);
}

std::optional<std::int64_t> FieldReader::read_integer(std::string_view field, const Value* value,
                                                      std::int64_t min, std::int64_t max) {
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail_type(field, *value, "an integer");
    return std::nullopt;
  }
  const std::optional<std::int64_t> number = exact_integer(*value);
  if (number && *number >= min && *number <= max) return number;
  const std::string constraint = range_text(min, max);
  fail_value(field, *value, constraint,
             fmt::format("must be an integer {}, is {}", within(constraint), serialize(*value)));
  return std::nullopt;
}

std::optional<double> FieldReader::read_number(std::string_view field, const Value* value,
                                               NumberRange range) {
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) {
    fail_type(field, *value, "a number");
    return std::nullopt;
  }
  const double number = value->to_number<double>();
  const bool low = range.above_min ? number <= range.min : number < range.min;
  if (!low && number <= range.max) return number;
  const std::string constraint = range_text(range);
  fail_value(field, *value, constraint,
             fmt::format("must be {}, is {}", within(constraint), serialize(*value)));
  return std::nullopt;
}

std::optional<bool> FieldReader::read_bool(std::string_view field, const Value* value) {
  if (value == nullptr) return std::nullopt;
  if (value->is_bool()) return value->get_bool();
  fail_type(field, *value, "a boolean");
  return std::nullopt;
}

const Object* FieldReader::read_object(std::string_view field, const Value* value) {
  if (value == nullptr) return nullptr;
  if (!value->is_object()) fail_type(field, *value, "an object");
  return value->if_object();
}

const Array* FieldReader::read_array(std::string_view field, const Value* value) {
  if (value == nullptr) return nullptr;
  if (!value->is_array()) fail_type(field, *value, "an array");
  return value->if_array();
}

}  // namespace llorch::json
