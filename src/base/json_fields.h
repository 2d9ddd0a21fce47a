// Takes the fields of a JSON object with type and range checks and collects every failure, so that
// one answer can name them all. Made for requests and settings; knows nothing of HTTP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace llorch::json {

struct FieldError {
  std::string field;           // "stop[2]", "options.seed"
  std::string constraint;      // short and stable: "required", "string", "0..2", "known field"
  std::string message;         // a sentence for people
  std::optional<Value> value;  // what was sent, for numbers and booleans only: text may be private
};

struct NumberRange {
  double min = -std::numeric_limits<double>::max();
  double max = std::numeric_limits<double>::max();
  bool above_min = false;  // min itself is refused too
};

struct StringRange {
  std::size_t min_bytes = 0;
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();
};

// Use: take every field once, then finish(). A taken field is a known one; finish() reports the
// others. What a failed take returns (nothing, or the type's zero for required ones) must not be
// used once finish() has reported anything. An optional field that is null counts as absent. The
// object must outlive the reader.
class FieldReader {
 public:
  // `prefix` comes in front of field names in errors: "options." for a nested object.
  explicit FieldReader(const Object& object, std::string prefix = {});

  std::string required_string(std::string_view field, StringRange range = {});
  std::optional<std::string> optional_string(std::string_view field, StringRange range = {});
  // Numbers with a zero fraction (2.0) are integers too, as JSON Schema has it.
  std::int64_t required_integer(std::string_view field, std::int64_t min, std::int64_t max);
  std::optional<std::int64_t> optional_integer(std::string_view field, std::int64_t min,
                                               std::int64_t max);
  std::optional<std::uint64_t> optional_unsigned(
      std::string_view field);  // the whole range of uint64
  double required_number(std::string_view field, NumberRange range = {});
  std::optional<double> optional_number(std::string_view field, NumberRange range = {});
  bool required_bool(std::string_view field);
  std::optional<bool> optional_bool(std::string_view field);
  // An array of at most max_count strings, each within `each`.
  std::optional<std::vector<std::string>> optional_strings(std::string_view field,
                                                           std::size_t max_count,
                                                           StringRange each = {});
  const Object* required_object(std::string_view field);  // null when it failed
  const Object* optional_object(std::string_view field);
  const Array* required_array(std::string_view field);
  const Array* optional_array(std::string_view field);
  // For fields with rules of their own: null when absent (or null); report with fail().
  const Value* optional_value(std::string_view field);

  // Known, accepted, not looked at.
  void ignore(std::string_view field);
  void ignore_others();  // all that are not taken
  // Reports a failure of the caller's own check of a field of this object.
  void fail(std::string_view field, std::string constraint, std::string message);
  // Takes over the failures of a nested object's reader.
  void add(std::vector<FieldError> errors);

  // All failures so far and one for each unknown field, in a stable order. Nothing: all is well.
  std::vector<FieldError> finish();

 private:
  const Value* take(std::string_view field);
  const Value* take_required(std::string_view field);
  void fail_value(std::string_view field, const Value& value, std::string constraint,
                  std::string message);
  void fail_type(std::string_view field, const Value& value, std::string_view expected);

  std::optional<std::string> read_string(std::string_view field, const Value* value,
                                         StringRange range);
  std::optional<std::int64_t> read_integer(std::string_view field, const Value* value,
                                           std::int64_t min, std::int64_t max);
  std::optional<double> read_number(std::string_view field, const Value* value, NumberRange range);
  std::optional<bool> read_bool(std::string_view field, const Value* value);
  const Object* read_object(std::string_view field, const Value* value);
  const Array* read_array(std::string_view field, const Value* value);

  const Object& object_;
  std::string prefix_;
  std::vector<bool> known_;  // for each field of the object: somebody took it
  std::vector<FieldError> errors_;
};

}  // namespace llorch::json
