#include "grammar/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace llorch::grammar {

namespace {

constexpr int kMaxDisjointDepth = 4;
// Of a pointer in a message, in bytes.
constexpr std::size_t kHead = 100;
constexpr std::size_t kTail = 60;
// Types with equal values that are written differently, or that hold such.
constexpr TypeSet kUnclear = kInteger | kFraction | kArray | kObject;

Error invalid(std::string_view pointer, std::string_view what) {
  return {ErrorCode::InvalidArgument, fmt::format("{}: {}", base::quoted(pointer), what)};
}

constexpr std::array<std::pair<std::string_view, TypeSet>, 7> kTypeNames = {{
    {"null", kNull},
    {"boolean", kBoolean},
    {"integer", kInteger},
    {"number", kInteger | kFraction},
    {"string", kString},
    {"array", kArray},
    {"object", kObject},
}};

constexpr std::array<std::pair<std::string_view, TypeSet>, 14> kImpliedTypes = {{
    {"properties", kObject},
    {"required", kObject},
    {"additionalProperties", kObject},
    {"items", kArray},
    {"prefixItems", kArray},
    {"minItems", kArray},
    {"maxItems", kArray},
    {"minLength", kString},
    {"maxLength", kString},
    {"pattern", kString},
    {"minimum", kInteger | kFraction},
    {"maximum", kInteger | kFraction},
    {"exclusiveMinimum", kInteger | kFraction},
    {"exclusiveMaximum", kInteger | kFraction},
}};

Result<TypeSet> named_type(const json::Value& name, std::string_view pointer) {
  if (name.is_string()) {
    for (const auto& [known, types] : kTypeNames) {
      if (json::view(name.get_string()) == known) return types;
    }
  }
  return invalid(pointer,
                 fmt::format("expected null, boolean, integer, number, string, array or object, "
                             "found {}",
                             name.is_string() ? base::quoted(json::view(name.get_string()))
                                              : std::string(json::kind_name(name))));
}

// One level down by an unescaped key; null where there is nothing.
const json::Value* descend(const json::Value& value, std::string_view key) {
  if (const json::Object* object = value.if_object()) {
    return object->if_contains(boost::json::string_view(key.data(), key.size()));
  }
  const json::Array* array = value.if_array();
  if (array == nullptr || key.empty() || (key.size() > 1 && key.front() == '0')) return nullptr;
  std::size_t index = 0;
  const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (failure != std::errc() || end != key.data() + key.size()) return nullptr;
  return index < array->size() ? &(*array)[index] : nullptr;
}

const json::Value* follow(const json::Value& document, std::string_view pointer) {
  const json::Value* value = &document;
  while (!pointer.empty() && value != nullptr) {
    pointer.remove_prefix(1);  // the slash
    const std::size_t length = std::min(pointer.find('/'), pointer.size());
    std::string key;
    for (std::size_t i = 0; i < length; ++i) {
      const bool is_escape = pointer[i] == '~' && i + 1 < length;
      key += !is_escape ? pointer[i] : pointer[++i] == '1' ? '/' : '~';
    }
    pointer.remove_prefix(length);
    value = descend(*value, key);
  }
  return value;
}

}  // namespace

TypeSet type_of(const json::Value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return kNull;
    case boost::json::kind::bool_:
      return kBoolean;
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      return kInteger;
    case boost::json::kind::double_:
      return std::trunc(value.get_double()) == value.get_double() ? kInteger : kFraction;
    case boost::json::kind::string:
      return kString;
    case boost::json::kind::array:
      return kArray;
    case boost::json::kind::object:
      return kObject;
  }
  return kAnyType;
}

Result<TypeSet> types_of(const json::Object& schema, std::string_view pointer) {
  TypeSet types = 0;
  const json::Value* type = schema.if_contains("type");
  const std::string type_pointer = child_pointer(pointer, "type");
  if (type == nullptr) {
    for (const auto& [keyword, implied] : kImpliedTypes) {
      if (schema.contains(boost::json::string_view(keyword.data(), keyword.size()))) {
        types |= implied;
      }
    }
    if (types == 0) types = kAnyType;
  } else if (const json::Array* list = type->if_array()) {
    if (list->empty()) return invalid(type_pointer, "an empty list of types allows nothing");
    for (const json::Value& name : *list) {
      const Result<TypeSet> one = named_type(name, type_pointer);
      if (!one.ok()) return one.error();
      types |= one.value();
    }
  } else {
    const Result<TypeSet> one = named_type(*type, type_pointer);
    if (!one.ok()) return one.error();
    types = one.value();
  }
  if (const json::Value* nullable = schema.if_contains("nullable")) {
    const std::string nullable_pointer = child_pointer(pointer, "nullable");
    if (!nullable->is_bool()) return invalid(nullable_pointer, "expected true or false");
    if (type == nullptr) return invalid(nullable_pointer, "only has a meaning beside \"type\"");
    if (nullable->get_bool()) types |= kNull;
  }
  return types;
}

namespace {

std::string shortened(std::string text) {
  if (text.size() <= kHead + kTail + 20) return text;
  return text.substr(0, kHead) + "…" + text.substr(text.size() - kTail);
}

}  // namespace

std::string child_pointer(std::string_view pointer, std::string_view key) {
  std::string result = std::string(pointer) + "/";
  for (const char c : key) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result += c;
    }
  }
  return shortened(std::move(result));
}

std::string child_pointer(std::string_view pointer, std::size_t index) {
  return shortened(fmt::format("{}/{}", pointer, index));
}

bool is_reference(const json::Value& schema) {
  return schema.is_object() && schema.get_object().contains("$ref");
}

Result<SchemaAt> follow_reference(const json::Value& document, const SchemaAt& from) {
  const json::Value& ref = from.value->get_object().at("$ref");
  const std::string at = child_pointer(from.pointer, "$ref");
  if (!ref.is_string()) return invalid(at, "expected a string");
  const std::string_view target = json::view(ref.get_string());
  if (target != "#" && !target.starts_with("#/")) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{}: {} is not in this schema; only \"#\" and \"#/…\" can be followed",
                             base::quoted(at), base::quoted(target))};
  }
  if (target.find('%') != std::string_view::npos) {
    return Error{
        ErrorCode::Unsupported,
        fmt::format("{}: a reference with percent-encoding; name the definition with plain "
                    "letters",
                    base::quoted(at))};
  }
  const json::Value* found = follow(document, target.substr(1));
  if (found == nullptr) {
    return invalid(at, fmt::format("nothing is at {}", base::quoted(target)));
  }
  return SchemaAt{found, shortened(std::string(target))};
}

namespace {

// The values of "enum" or "const", where a schema has one.
std::vector<const json::Value*> constants_of(const json::Object& schema) {
  std::vector<const json::Value*> values;
  if (const json::Value* value = schema.if_contains("const")) {
    values.push_back(value);
  } else if (const json::Value* list = schema.if_contains("enum"); list && list->is_array()) {
    for (const json::Value& one : list->get_array()) values.push_back(&one);
  }
  return values;
}

TypeSet allowed_types(const json::Object& schema) {
  TypeSet types = kAnyType;
  if (const json::Value* type = schema.if_contains("type"); type != nullptr) {
    const Result<TypeSet> named = types_of(schema, "");
    if (named.ok()) types = named.value();
  }
  const std::vector<const json::Value*> constants = constants_of(schema);
  if (constants.empty()) return types;
  TypeSet of_constants = 0;
  for (const json::Value* value : constants) of_constants |= type_of(*value);
  return types & of_constants;
}

class DisjointProof {
 public:
  DisjointProof(const json::Value& document, std::int64_t& budget)
      : document_(document), budget_(budget) {}

  bool excludes(const json::Value& a, const json::Value& b, int depth) {
    if (depth > kMaxDisjointDepth) return false;
    const json::Object* a_schema = find_object(a);
    const json::Object* b_schema = find_object(b);
    if (a_schema == nullptr || b_schema == nullptr) return false;
    const std::vector<const json::Value*> a_constants = constants_of(*a_schema);
    const std::vector<const json::Value*> b_constants = constants_of(*b_schema);
    if (!spend(1 + a_constants.size() + b_constants.size())) return false;
    if ((allowed_types(*a_schema) & allowed_types(*b_schema)) == 0) return true;
    if (!a_constants.empty() && !b_constants.empty()) return are_apart(a_constants, b_constants);
    return has_discriminator(*a_schema, *b_schema, depth);
  }

 private:
  bool spend(std::size_t cost) {
    budget_ -= std::min(budget_, static_cast<std::int64_t>(cost));
    return budget_ > 0;
  }

  // The schema behind all references; null where there is none.
  const json::Object* find_object(const json::Value& schema) {
    SchemaAt at = {&schema, ""};
    for (std::size_t i = 0; is_reference(*at.value); ++i) {
      Result<SchemaAt> next = follow_reference(document_, at);
      if (!next.ok() || i == kMaxReferences || !spend(1)) return nullptr;
      at = next.take();
    }
    return at.value->if_object();
  }

  // As text; 1 and 1.0 are equal numbers with two texts, so numbers and what may hold them prove
  // nothing.
  static bool are_apart(const std::vector<const json::Value*>& a,
                        const std::vector<const json::Value*>& b) {
    std::vector<std::string> texts;
    for (const json::Value* value : a) {
      if ((type_of(*value) & kUnclear) != 0) return false;
      texts.push_back(json::serialize(*value));
    }
    std::sort(texts.begin(), texts.end());
    return std::none_of(b.begin(), b.end(), [&](const json::Value* value) {
      return std::binary_search(texts.begin(), texts.end(), json::serialize(*value));
    });
  }

  // Both are objects only, and a property that both require cannot be the same.
  bool has_discriminator(const json::Object& a, const json::Object& b, int depth) {
    if (allowed_types(a) != kObject || allowed_types(b) != kObject) return false;
    const json::Value* a_properties = a.if_contains("properties");
    const json::Value* b_properties = b.if_contains("properties");
    if (!a_properties || !b_properties) return false;
    if (!a_properties->is_object() || !b_properties->is_object()) return false;
    for (const auto& [name, schema] : a_properties->get_object()) {
      const json::Value* other = b_properties->get_object().if_contains(name);
      if (other != nullptr && requires_property(a, name) && requires_property(b, name) &&
          excludes(schema, *other, depth + 1)) {
        return true;
      }
    }
    return false;
  }

  bool requires_property(const json::Object& schema, boost::json::string_view name) {
    const json::Value* required = schema.if_contains("required");
    if (required == nullptr || !required->is_array()) return false;
    const json::Array& list = required->get_array();
    return spend(1 + list.size()) &&
           std::any_of(list.begin(), list.end(), [&](const json::Value& one) {
             return one.is_string() && one.get_string() == name;
           });
  }

  const json::Value& document_;
  std::int64_t& budget_;
};

}  // namespace

bool are_disjoint(const json::Value& document, const json::Value& a, const json::Value& b,
                  std::int64_t& budget) {
  return DisjointProof(document, budget).excludes(a, b, 0);
}

}  // namespace llorch::grammar
