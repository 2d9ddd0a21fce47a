// The fields of a struct of the wire, described once. A struct has
//   template <class V, Described<MyStruct> T> void describe(V& v, T& value)
// which calls v("name", value.member, {rules}) for each of its fields; FieldWriter, FieldTaker and
// SchemaWriter are the visitors that write the JSON, read it, and tell its JSON Schema.
//
// A member is a number, a bool, a text, an enum, a struct, or a list of these; a struct that has a
// to_json() of its own has a schema_of() too. In what is only written it may also be
//   std::nullptr_t                       null, and nothing else
//   json::Value                          any JSON
//   std::filesystem::path                its text
//   std::variant<A, B>                   one of these
//   std::vector<std::pair<text, T>>      an object with these names
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"

namespace llorch::contract {

template <class T, class Struct>
concept Described = std::same_as<std::remove_const_t<T>, Struct>;

// Whose JSON is made by a function beside it.
template <class T>
concept HasOwnJson = requires(const T& value) {
  { to_json(value) } -> std::same_as<json::Object>;
};

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsVariant = false;
template <class... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;
template <class T>
inline constexpr bool kIsNamedList = false;
template <class T>
inline constexpr bool kIsNamedList<std::vector<std::pair<std::string, T>>> = true;

// What there is to say about a field beside its name and type.
struct FieldRule {
  bool must = false;               // refused without it
  std::optional<double> min = {};  // of a number; counts and times begin at 0
  std::optional<double> max = {};  // of a number
  bool above_min = false;          // min itself is refused too
  json::StringRange bytes = {};    // of a text, or of each text of a list
  std::size_t max_items = 1024;    // of a list
  std::span<const std::string_view> names =
      {};                         // the only texts there are; an enum's, in its order
  std::string_view pattern = {};  // for the schema: the reader has its own check
  bool omit_empty =
      false;  // an empty text or list, 0 and false make no field, as an absent optional
  bool null_when_absent = false;  // an absent optional is written, as null
  bool thousandths = false;       // a number is rounded to three decimals
  std::string_view doc = {};
};

// Text in valid UTF-8, whatever is in the member.
class FieldWriter {
 public:
  explicit FieldWriter(json::Object& object) : object_(object) {}

  template <class T>
  void operator()(std::string_view name, const T& value, const FieldRule& rule = {}) {
    if (!(rule.omit_empty && is_empty(value))) object_[name] = json_of(value, rule);
  }
  template <class T>
  void operator()(std::string_view name, const std::optional<T>& value,
                  const FieldRule& rule = {}) {
    if (value && !(rule.omit_empty && is_empty(*value))) {
      object_[name] = json_of(*value, rule);
    } else if (rule.null_when_absent) {
      object_[name] = nullptr;
    }
  }

  // What follows from other fields: written, told in the schema, not read.
  template <class T>
  void derived(std::string_view name, const T& value) {
    (*this)(name, value);
  }

  template <class T>
  static json::Value json_of(const T& value, const FieldRule& rule = {}) {
    if constexpr (std::is_enum_v<T>) {
      return json::Value(rule.names[static_cast<std::size_t>(value)]);
    } else if constexpr (std::is_floating_point_v<T>) {
      return number(value, rule);
    } else if constexpr (std::is_integral_v<T>) {
      return value;
    } else if constexpr (std::is_same_v<T, std::string>) {
      return text(value);
    } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
      return text(value.string());
    } else if constexpr (std::is_same_v<T, std::nullptr_t> || std::is_same_v<T, json::Value>) {
      return value;
    } else if constexpr (kIsOptional<T>) {
      return value ? json_of(*value, rule) : json::Value();
    } else if constexpr (kIsVariant<T>) {
      return std::visit([&rule](const auto& one) { return json_of(one, rule); }, value);
    } else if constexpr (kIsNamedList<T>) {
      json::Object object;
      for (const auto& [name, one] : value) object[name] = json_of(one);
      return object;
    } else if constexpr (requires { value.begin(); }) {
      json::Array array;
      array.reserve(value.size());
      for (const auto& element : value) array.push_back(json_of(element));
      return array;
    } else if constexpr (HasOwnJson<T>) {
      return to_json(value);
    } else {
      json::Object object;
      FieldWriter nested(object);
      describe(nested, value);
      return object;
    }
  }

 private:
  template <class T>
  static bool is_empty(const T& value) {
    if constexpr (std::is_scalar_v<T>) {
      return value == T{};
    } else if constexpr (requires { value.empty(); }) {
      return value.empty();
    } else {
      return false;
    }
  }
  static json::Value text(const std::string& value);
  static json::Value number(double value, const FieldRule& rule);
  static json::Value number(float value, const FieldRule& rule);  // 0.7, not 0.699999988079071

  json::Object& object_;
};

// Ids of tokens, integers of 0 and above; nothing when there are others in it.
std::optional<std::vector<std::int32_t>> to_token_ids(const json::Array& array);
// The same as a field that may be absent; nothing when it is, or when it failed.
std::optional<std::vector<std::int32_t>> take_token_ids(json::FieldReader& reader,
                                                        std::string_view name);

// What becomes of fields that are not described within inner objects; those of the outermost one
// are the reader's. A peer may be newer than we are; whoever asks is told.
enum class OtherFields : std::uint8_t { Ignore, Refuse };

// An absent or null field keeps its default; failures are left in the reader.
class FieldTaker {
 public:
  explicit FieldTaker(json::FieldReader& reader, OtherFields others = OtherFields::Ignore)
      : reader_(reader), others_(others) {}

  template <class T>
  void operator()(std::string_view name, T& value, const FieldRule& rule = {}) {
    const json::Value* found = find(name, rule);
    if (found == nullptr) return;
    if constexpr (std::is_enum_v<T>) {
      if (const auto index = named(name, rule)) value = static_cast<T>(*index);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = reader_.optional_bool(name).value_or(value);
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      value = reader_.optional_unsigned(name).value_or(value);
    } else if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(integer<T>(name, rule).value_or(value));
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(number(name, rule).value_or(value));
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (auto read = text(name, rule)) value = std::move(*read);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      if (auto read = reader_.optional_strings(name, rule.max_items, rule.bytes))
        value = std::move(*read);
    } else if constexpr (std::is_same_v<T, std::vector<std::int32_t>>) {
      if (auto read = take_token_ids(reader_, name)) value = std::move(*read);
    } else if constexpr (requires { value.begin(); }) {
      for (const json::Value& element : elements(name, rule)) {
        const std::string where = indexed(name, value.size());
        take_object(element, value.emplace_back(), where);
      }
    } else {
      take_object(*found, value, std::string(name));
    }
  }
  template <class T>
  void operator()(std::string_view name, std::optional<T>& value, const FieldRule& rule = {}) {
    if (find(name, rule) == nullptr) return;
    T read{};
    (*this)(name, read, rule);
    value = std::move(read);
  }
  template <class T>
  void derived(std::string_view name, const T&) {
    reader_.ignore(name);
  }

 private:
  template <class T>
  void take_object(const json::Value& element, T& value, const std::string& where) {
    const json::Object* object = object_at(element, where);
    if (object == nullptr) return;
    json::FieldReader nested(*object, where + ".");
    FieldTaker taker(nested, others_);
    describe(taker, value);
    if (others_ == OtherFields::Ignore) nested.ignore_others();
    reader_.add(nested.finish());
  }
  template <class T>
  std::optional<std::int64_t> integer(std::string_view name, const FieldRule& rule) {
    using Limits = std::numeric_limits<T>;
    return reader_.optional_integer(
        name, rule.min ? static_cast<std::int64_t>(*rule.min) : std::int64_t{Limits::min()},
        rule.max ? static_cast<std::int64_t>(*rule.max) : std::int64_t{Limits::max()});
  }

  const json::Value* find(std::string_view name, const FieldRule& rule);
  std::optional<double> number(std::string_view name, const FieldRule& rule);
  std::optional<std::string> text(std::string_view name, const FieldRule& rule);
  std::optional<std::size_t> named(std::string_view name, const FieldRule& rule);
  std::span<const json::Value> elements(std::string_view name, const FieldRule& rule);
  static std::string indexed(std::string_view name, std::size_t index);
  const json::Object* object_at(const json::Value& element, const std::string& where);

  json::FieldReader& reader_;
  const OtherFields others_;
};

// Whose schema: an answer requires what is always written, a request what must be sent, and tells
// the defaults of the rest.
enum class SchemaOf : std::uint8_t { Answer, Request };

// The JSON Schema of a struct of the wire; each header says for which there is one.
template <class T>
json::Object schema_of();

class SchemaWriter {
 public:
  explicit SchemaWriter(SchemaOf what) : what_(what) {}

  template <class T>
  void operator()(std::string_view name, const T& value, const FieldRule& rule = {}) {
    json::Object schema = schema_of_value(value, rule);
    if constexpr (std::is_arithmetic_v<T>) {
      if (what_ == SchemaOf::Request && !rule.must)
        schema["default"] = FieldWriter::json_of(value, rule);
    }
    add(name, std::move(schema), rule, !rule.omit_empty);
  }
  template <class T>
  void operator()(std::string_view name, const std::optional<T>&, const FieldRule& rule = {}) {
    json::Object schema = schema_of_value(T{}, rule);
    if (rule.null_when_absent) allow_null(schema);
    add(name, std::move(schema), rule, rule.null_when_absent);
  }
  template <class T>
  void derived(std::string_view name, const T& value) {
    (*this)(name, value);
  }
  // A field that is written by hand.
  void add(std::string_view name, json::Object schema, const FieldRule& rule = {},
           bool is_always_written = true);

  // `is_open`: there may be other fields.
  json::Object finish(bool is_open = false) const;

 private:
  template <class T>
  json::Object schema_of_value(const T& value, const FieldRule& rule) const {
    if constexpr (std::is_enum_v<T> || std::is_same_v<T, std::string> ||
                  std::is_same_v<T, std::filesystem::path>) {
      return text_schema(rule);
    } else if constexpr (std::is_same_v<T, bool>) {
      return {{"type", "boolean"}};
    } else if constexpr (std::is_arithmetic_v<T>) {
      return number_schema(std::is_integral_v<T>, rule);
    } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
      return {{"type", "null"}};
    } else if constexpr (std::is_same_v<T, json::Value>) {
      return {};
    } else if constexpr (kIsOptional<T>) {
      json::Object schema = schema_of_value(typename T::value_type{}, rule);
      allow_null(schema);
      return schema;
    } else if constexpr (kIsVariant<T>) {
      return {{"oneOf", schemas_of(value, rule)}};
    } else if constexpr (kIsNamedList<T>) {
      using Named = typename T::value_type::second_type;
      return {{"type", "object"}, {"additionalProperties", schema_of_value(Named{}, {})}};
    } else if constexpr (requires { value.begin(); }) {
      const FieldRule each{.min = rule.min, .max = rule.max, .bytes = rule.bytes};
      json::Object items = schema_of_value(typename T::value_type{}, each);
      return list_schema(std::move(items), what_ == SchemaOf::Request ? rule.max_items : 0);
    } else if constexpr (HasOwnJson<T>) {
      return schema_of<T>();
    } else {
      SchemaWriter nested(what_);
      describe(nested, value);
      return nested.finish();
    }
  }
  template <class... T>
  json::Array schemas_of(const std::variant<T...>&, const FieldRule& rule) const {
    return {schema_of_value(T{}, rule)...};
  }
  static void allow_null(json::Object& schema);
  static json::Object text_schema(const FieldRule& rule);
  static json::Object number_schema(bool is_integer, const FieldRule& rule);
  static json::Object list_schema(json::Object items, std::size_t max_items);

  const SchemaOf what_;
  json::Object properties_;
  json::Array required_;
};

template <class T>
json::Object write_fields(const T& value) {
  json::Object object;
  FieldWriter writer(object);
  describe(writer, value);
  return object;
}

// What most specialisations do.
template <class T>
json::Object described_schema(SchemaOf what, bool is_open = false) {
  SchemaWriter writer(what);
  const T value{};
  describe(writer, value);
  return writer.finish(is_open);
}

}  // namespace llorch::contract
