// A JSON Schema validator for tests: the plainest reading of the keywords that the grammar
// enforces, sharing nothing with it. It is itself held against the verdicts in
// tests/golden/grammar.
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"

namespace llorch::grammar::test {

class Validator {
 public:
  explicit Validator(const json::Value& document) : document_(document) {}

  bool is_valid(const json::Value& value) const { return check(document_, value); }

 private:
  static bool has_type(const json::Value& value, std::string_view type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_bool();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    if (type == "object") return value.is_object();
    if (type == "number") return value.is_number();
    if (type != "integer" || !value.is_number()) return false;
    return !value.is_double() || std::floor(value.get_double()) == value.get_double();
  }

  static bool equal(const json::Value& a, const json::Value& b) {
    if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
    return a == b;
  }

  const json::Value& target(std::string_view ref) const {
    const json::Value* value = &document_;
    std::string_view rest = ref.substr(1);
    while (!rest.empty()) {
      rest.remove_prefix(1);
      const std::size_t end = std::min(rest.find('/'), rest.size());
      value = &value->as_object().at(boost::json::string_view(rest.data(), end));
      rest.remove_prefix(end);
    }
    return *value;
  }

  bool check(const json::Value& schema, const json::Value& value) const {
    if (schema.is_bool()) return schema.get_bool();
    const json::Object& s = schema.as_object();
    if (const auto* ref = s.if_contains("$ref")) {
      if (!check(target(json::view(ref->as_string())), value)) return false;
    }
    return check_types(s, value) && check_combined(s, value) && check_scalar(s, value) &&
           (!value.is_array() || check_array(s, value.get_array())) &&
           (!value.is_object() || check_object(s, value.get_object()));
  }

  static bool check_types(const json::Object& s, const json::Value& value) {
    if (const auto* type = s.if_contains("type")) {
      const auto* nullable = s.if_contains("nullable");
      bool any = nullable && nullable->as_bool() && value.is_null();
      if (type->is_string()) any = any || has_type(value, json::view(type->get_string()));
      if (type->is_array()) {
        for (const auto& one : type->get_array()) {
          any = any || has_type(value, json::view(one.as_string()));
        }
      }
      if (!any) return false;
    }
    if (const auto* constant = s.if_contains("const"); constant && !equal(*constant, value)) {
      return false;
    }
    if (const auto* list = s.if_contains("enum")) {
      bool any = false;
      for (const auto& one : list->as_array()) any = any || equal(one, value);
      return any;
    }
    return true;
  }

  bool check_combined(const json::Object& s, const json::Value& value) const {
    const auto count = [&](const json::Value& list) {
      std::size_t matches = 0;
      for (const auto& one : list.as_array()) matches += check(one, value) ? 1U : 0U;
      return matches;
    };
    if (const auto* list = s.if_contains("anyOf"); list && count(*list) == 0) return false;
    if (const auto* list = s.if_contains("oneOf"); list && count(*list) != 1) return false;
    const auto* all = s.if_contains("allOf");
    return all == nullptr || count(*all) == all->as_array().size();
  }

  static bool check_scalar(const json::Object& s, const json::Value& value) {
    const auto number = [&](const char* key, double otherwise) {
      const auto* bound = s.if_contains(key);
      return bound == nullptr ? otherwise : bound->to_number<double>();
    };
    if (value.is_string()) {
      const auto length = static_cast<double>(base::count_scalars(json::view(value.get_string())));
      return length >= number("minLength", 0) && length <= number("maxLength", HUGE_VAL);
    }
    if (!value.is_number()) return true;
    const double x = value.to_number<double>();
    return x >= number("minimum", -HUGE_VAL) && x <= number("maximum", HUGE_VAL) &&
           x > number("exclusiveMinimum", -HUGE_VAL) && x < number("exclusiveMaximum", HUGE_VAL);
  }

  bool check_array(const json::Object& s, const json::Array& array) const {
    const auto number = [&](const char* key, double otherwise) {
      const auto* bound = s.if_contains(key);
      return bound == nullptr ? otherwise : bound->to_number<double>();
    };
    const auto size = static_cast<double>(array.size());
    if (size < number("minItems", 0) || size > number("maxItems", HUGE_VAL)) return false;
    std::size_t index = 0;
    if (const auto* prefix = s.if_contains("prefixItems")) {
      for (; index < prefix->as_array().size() && index < array.size(); ++index) {
        if (!check(prefix->as_array()[index], array[index])) return false;
      }
    }
    const auto* items = s.if_contains("items");
    for (; items != nullptr && index < array.size(); ++index) {
      if (!check(*items, array[index])) return false;
    }
    return true;
  }

  bool check_object(const json::Object& s, const json::Object& object) const {
    if (const auto* required = s.if_contains("required")) {
      for (const auto& name : required->as_array()) {
        if (!object.contains(name.as_string())) return false;
      }
    }
    const auto* properties = s.if_contains("properties");
    const auto* others = s.if_contains("additionalProperties");
    for (const auto& member : object) {
      const json::Value* schema =
          properties == nullptr ? nullptr : properties->as_object().if_contains(member.key());
      if (schema == nullptr) schema = others;
      if (schema != nullptr && !check(*schema, member.value())) return false;
    }
    return true;
  }

  const json::Value& document_;
};

}  // namespace llorch::grammar::test
