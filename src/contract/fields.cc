#include "contract/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/utf8.h"

namespace llorch::contract {
namespace {

// "a, b or c".
std::string choices_text(std::span<const std::string_view> names) {
  if (names.size() < 2) return fmt::format("{}", fmt::join(names, ""));
  return fmt::format("{} or {}", fmt::join(names.first(names.size() - 1), ", "), names.back());
}

// 2, not 2E0.
json::Value plain_number(double number) {
  if (number == std::trunc(number)) return static_cast<std::int64_t>(number);
  return number;
}

}  // namespace

json::Value FieldWriter::text(const std::string& value) {
  return json::Value(base::to_valid_utf8(value));
}

json::Value FieldWriter::number(double value, const FieldRule& rule) {
  return rule.thousandths ? std::round(value * 1000) / 1000 : value;
}

json::Value FieldWriter::number(float value, const FieldRule&) {
  // The double with the shortest decimal text that still reads back as this float.
  std::array<char, 32> text;
  const std::to_chars_result written = std::to_chars(text.data(), text.data() + text.size(), value);
  double shortest = 0;
  std::from_chars(text.data(), written.ptr, shortest);
  return shortest;
}

std::optional<std::vector<std::int32_t>> to_token_ids(const json::Array& array) {
  std::vector<std::int32_t> ids;
  ids.reserve(array.size());
  for (const json::Value& value : array) {
    const std::int64_t* number = value.if_int64();
    if (number == nullptr || *number < 0 || *number > std::numeric_limits<std::int32_t>::max())
      return std::nullopt;
    ids.push_back(static_cast<std::int32_t>(*number));
  }
  return ids;
}

std::optional<std::vector<std::int32_t>> take_token_ids(json::FieldReader& reader,
                                                        std::string_view name) {
  const json::Array* array = reader.optional_array(name);
  if (array == nullptr) return std::nullopt;
  std::optional<std::vector<std::int32_t>> ids = to_token_ids(*array);
  if (!ids) {
    reader.fail(name, "token ids",
                fmt::format("must hold token ids only: integers from 0 to {}",
                            std::numeric_limits<std::int32_t>::max()));
  }
  return ids;
}

const json::Value* FieldTaker::find(std::string_view name, const FieldRule& rule) {
  const json::Value* found = reader_.optional_value(name);
  if (found == nullptr && rule.must) reader_.fail(name, "required", "is required");
  return found;
}

std::optional<double> FieldTaker::number(std::string_view name, const FieldRule& rule) {
  json::NumberRange range;
  if (rule.min) range.min = *rule.min;
  if (rule.max) range.max = *rule.max;
  range.above_min = rule.above_min;
  return reader_.optional_number(name, range);
}

std::optional<std::string> FieldTaker::text(std::string_view name, const FieldRule& rule) {
  std::optional<std::string> read = reader_.optional_string(name, rule.bytes);
  if (!read || rule.names.empty()) return read;
  if (std::find(rule.names.begin(), rule.names.end(), *read) != rule.names.end()) return read;
  reader_.fail(name, fmt::format("{}", fmt::join(rule.names, "|")),
               fmt::format("must be {}, not {}", choices_text(rule.names), base::quoted(*read)));
  return std::nullopt;
}

std::optional<std::size_t> FieldTaker::named(std::string_view name, const FieldRule& rule) {
  const std::optional<std::string> read = reader_.optional_string(name);
  if (!read) return std::nullopt;
  const auto found = std::find(rule.names.begin(), rule.names.end(), *read);
  if (found != rule.names.end()) return static_cast<std::size_t>(found - rule.names.begin());
  reader_.fail(name, "known name", "is unknown: " + base::quoted(*read));
  return std::nullopt;
}

std::span<const json::Value> FieldTaker::elements(std::string_view name, const FieldRule& rule) {
  const json::Array* array = reader_.optional_array(name);
  if (array == nullptr) return {};
  if (array->size() > rule.max_items) {
    reader_.fail(name, fmt::format("at most {}", rule.max_items),
                 fmt::format("has {} elements", array->size()));
    return {};
  }
  return {array->data(), array->size()};
}

std::string FieldTaker::indexed(std::string_view name, std::size_t index) {
  return fmt::format("{}[{}]", name, index);
}

const json::Object* FieldTaker::object_at(const json::Value& element, const std::string& where) {
  const json::Object* object = element.if_object();
  if (object == nullptr)
    reader_.fail(where, "object", fmt::format("is {}", json::kind_name(element)));
  return object;
}

void SchemaWriter::add(std::string_view name, json::Object schema, const FieldRule& rule,
                       bool is_always_written) {
  if (json::Value* fallback = schema.if_contains("default"); fallback && fallback->is_double())
    *fallback = plain_number(fallback->get_double());
  if (!rule.doc.empty()) schema["description"] = rule.doc;
  properties_[name] = std::move(schema);
  if (what_ == SchemaOf::Request ? rule.must : is_always_written) required_.emplace_back(name);
}

json::Object SchemaWriter::finish(bool is_open) const {
  json::Object schema{{"type", "object"}};
  if (!is_open) schema["additionalProperties"] = false;
  schema["required"] = required_;
  schema["properties"] = properties_;
  return schema;
}

void SchemaWriter::allow_null(json::Object& schema) {
  if (json::Value* type = schema.if_contains("type")) {
    *type = json::Array{*type, "null"};
  } else if (json::Value* choices = schema.if_contains("enum")) {
    choices->get_array().emplace_back(nullptr);
  } else if (json::Value* kinds = schema.if_contains("oneOf")) {
    kinds->get_array().push_back(json::Object{{"type", "null"}});
  }
}

json::Object SchemaWriter::text_schema(const FieldRule& rule) {
  if (!rule.names.empty()) {
    json::Array names;
    for (const std::string_view name : rule.names) names.emplace_back(name);
    return {{"enum", std::move(names)}};
  }
  json::Object schema{{"type", "string"}};
  const json::StringRange any;
  if (rule.bytes.min_bytes != any.min_bytes) schema["minLength"] = rule.bytes.min_bytes;
  if (rule.bytes.max_bytes != any.max_bytes) schema["maxLength"] = rule.bytes.max_bytes;
  if (!rule.pattern.empty()) schema["pattern"] = rule.pattern;
  return schema;
}

json::Object SchemaWriter::number_schema(bool is_integer, const FieldRule& rule) {
  json::Object schema{{"type", is_integer ? "integer" : "number"}};
  if (rule.min) schema[rule.above_min ? "exclusiveMinimum" : "minimum"] = plain_number(*rule.min);
  if (rule.max) schema["maximum"] = plain_number(*rule.max);
  return schema;
}

json::Object SchemaWriter::list_schema(json::Object items, std::size_t max_items) {
  json::Object schema{{"type", "array"}, {"items", std::move(items)}};
  if (max_items != 0) schema["maxItems"] = max_items;
  return schema;
}

}  // namespace llorch::contract
