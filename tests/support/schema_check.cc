#include "support/schema_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <string_view>

#include "base/utf8.h"

namespace llorch::test {
namespace {

using Problems = std::vector<std::string>;

bool is_of_type(const json::Value& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_bool();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_int64() || value.is_uint64();
  return type == "number" && value.is_number();
}

void append(Problems& to, Problems from) {
  to.insert(to.end(), from.begin(), from.end());
}

void check_type(const json::Value& types, const json::Value& value, const std::string& where,
                Problems& out) {
  const json::Array one{types};
  const json::Array& list = types.is_array() ? types.get_array() : one;
  const bool fits = std::any_of(list.begin(), list.end(), [&](const json::Value& type) {
    return is_of_type(value, json::view(type.get_string()));
  });
  if (!fits) out.push_back(where + ": is not of type " + json::serialize(types));
}

void check_object(const json::Object& document, const json::Object& schema,
                  const json::Object& value, const std::string& where, Problems& out) {
  static const json::Object kNone;
  const json::Value* properties = schema.if_contains("properties");
  const json::Object& known = properties != nullptr ? properties->get_object() : kNone;
  if (const json::Value* required = schema.if_contains("required")) {
    for (const json::Value& name : required->get_array()) {
      if (!value.contains(name.get_string()))
        out.push_back(where + ": lacks " + json::serialize(name));
    }
  }
  const json::Value* others = schema.if_contains("additionalProperties");
  for (const auto& field : value) {
    const std::string place = fmt::format("{}.{}", where, json::view(field.key()));
    if (const json::Value* inner = known.if_contains(field.key())) {
      append(out, check_schema(document, *inner, field.value(), place));
    } else if (others != nullptr && others->is_object()) {
      append(out, check_schema(document, *others, field.value(), place));
    } else if (others != nullptr && *others == json::Value(false)) {
      out.push_back(place + ": is not in the schema");
    }
  }
  if (const json::Value* most = schema.if_contains("maxProperties");
      most != nullptr && value.size() > static_cast<std::size_t>(most->to_number<std::int64_t>()))
    out.push_back(where + ": has too many fields");
}

void check_array(const json::Object& document, const json::Object& schema, const json::Array& value,
                 const std::string& where, Problems& out) {
  if (const json::Value* most = schema.if_contains("maxItems");
      most != nullptr && value.size() > static_cast<std::size_t>(most->to_number<std::int64_t>()))
    out.push_back(where + ": is too long");
  if (const json::Value* least = schema.if_contains("minItems");
      least != nullptr && value.size() < static_cast<std::size_t>(least->to_number<std::int64_t>()))
    out.push_back(where + ": is too short");
  const json::Value* items = schema.if_contains("items");
  for (std::size_t i = 0; items != nullptr && i < value.size(); ++i)
    append(out, check_schema(document, *items, value[i], fmt::format("{}[{}]", where, i)));
}

void check_scalar(const json::Object& schema, const json::Value& value, const std::string& where,
                  Problems& out) {
  if (value.is_number()) {
    const double number = value.to_number<double>();
    const auto bound = [&](const char* name) {
      const json::Value* limit = schema.if_contains(name);
      return limit != nullptr ? std::optional<double>(limit->to_number<double>()) : std::nullopt;
    };
    if (number < bound("minimum").value_or(number)) out.push_back(where + ": is too small");
    if (number > bound("maximum").value_or(number)) out.push_back(where + ": is too large");
    if (bound("exclusiveMinimum") && number <= *bound("exclusiveMinimum"))
      out.push_back(where + ": is too small");
  }
  if (!value.is_string()) return;
  const std::string_view text = json::view(value.get_string());
  const auto length = static_cast<std::int64_t>(base::count_scalars(text));
  if (const json::Value* least = schema.if_contains("minLength");
      least != nullptr && length < least->to_number<std::int64_t>())
    out.push_back(where + ": is too short");
  if (const json::Value* most = schema.if_contains("maxLength");
      most != nullptr && length > most->to_number<std::int64_t>())
    out.push_back(where + ": is too long");
  if (const json::Value* pattern = schema.if_contains("pattern");
      pattern != nullptr &&
      !std::regex_search(std::string(text),
                         std::regex(std::string(json::view(pattern->get_string())))))
    out.push_back(where + ": does not match the pattern");
}

bool is_known_keyword(std::string_view keyword) {
  static constexpr std::string_view kKnown[] = {
      "$ref",          "type",        "enum",
      "const",         "oneOf",       "properties",
      "required",      "items",       "maxItems",
      "minItems",      "minLength",   "maxLength",
      "pattern",       "minimum",     "maximum",
      "default",       "description", "exclusiveMinimum",
      "maxProperties", "x-llorch",    "additionalProperties"};
  return std::find(std::begin(kKnown), std::end(kKnown), keyword) != std::end(kKnown);
}

}  // namespace

std::vector<std::string> check_schema(const json::Object& document, const json::Value& schema,
                                      const json::Value& value, const std::string& where) {
  Problems out;
  const json::Object& object = schema.get_object();
  for (const auto& keyword : object) {
    if (!is_known_keyword(json::view(keyword.key())))
      out.push_back(fmt::format("{}: unknown keyword {}", where, json::view(keyword.key())));
  }
  if (const json::Value* ref = object.if_contains("$ref")) {
    const std::string_view path = json::view(ref->get_string());
    return check_named(document, path.substr(path.rfind('/') + 1), value);
  }
  if (const json::Value* types = object.if_contains("type")) check_type(*types, value, where, out);
  if (const json::Value* options = object.if_contains("enum")) {
    const json::Array& list = options->get_array();
    if (std::find(list.begin(), list.end(), value) == list.end())
      out.push_back(where + ": is none of " + json::serialize(*options));
  }
  if (const json::Value* only = object.if_contains("const"); only != nullptr && *only != value)
    out.push_back(where + ": is not " + json::serialize(*only));
  if (const json::Value* one = object.if_contains("oneOf")) {
    const auto fits = [&](const json::Value& option) {
      return check_schema(document, option, value, where).empty();
    };
    const json::Array& list = one->get_array();
    if (std::none_of(list.begin(), list.end(), fits))
      out.push_back(where + ": fits none of the alternatives");
  }
  if (value.is_object()) check_object(document, object, value.get_object(), where, out);
  if (value.is_array()) check_array(document, object, value.get_array(), where, out);
  check_scalar(object, value, where, out);
  return out;
}

std::vector<std::string> check_named(const json::Object& document, std::string_view name,
                                     const json::Value& value) {
  const json::Object& schemas = document.at("components").get_object().at("schemas").get_object();
  const json::Value* schema = schemas.if_contains(name);
  if (schema == nullptr) return {fmt::format("no schema named {}", name)};
  return check_schema(document, *schema, value, std::string(name));
}

}  // namespace llorch::test
