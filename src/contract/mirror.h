// Structs whose fields are listed once for both ways: `template <class V> void visit(V& v, T&
// value)` calls v("name", value.member) for each, and MirrorWriter or MirrorReader does the rest.
// Private to contract/. Reading is tolerant, as from a program of ours that may be newer: an absent
// or null field keeps its default, a field of another type is an error.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"

namespace llorch::contract {

class MirrorWriter {
 public:
  explicit MirrorWriter(json::Object& object) : object_(object) {}

  template <class T>
  void operator()(std::string_view name, const T& value) {
    object_[name] = value;
  }
  void operator()(std::string_view name, const std::vector<std::string>& values) {
    json::Array array;
    for (const std::string& value : values) array.emplace_back(value);
    object_[name] = std::move(array);
  }
  // What is not known makes no field.
  template <class T>
  void operator()(std::string_view name, const std::optional<T>& value) {
    if (value) object_[name] = *value;
  }

 private:
  json::Object& object_;
};

class MirrorReader {
 public:
  explicit MirrorReader(json::FieldReader& reader) : reader_(reader) {}

  void operator()(std::string_view name, std::string& value) {
    if (auto read = reader_.optional_string(name)) value = std::move(*read);
  }
  void operator()(std::string_view name, double& value) {
    value = reader_.optional_number(name).value_or(value);
  }
  void operator()(std::string_view name, bool& value) {
    value = reader_.optional_bool(name).value_or(value);
  }
  template <std::signed_integral T>
  void operator()(std::string_view name, T& value) {
    if (const auto read = integer<T>(name)) value = *read;
  }
  template <std::signed_integral T>
  void operator()(std::string_view name, std::optional<T>& value) {
    if (const auto read = integer<T>(name)) value = *read;
  }
  void operator()(std::string_view name, std::optional<double>& value) {
    if (const auto read = reader_.optional_number(name)) value = read;
  }
  void operator()(std::string_view name, std::vector<std::string>& values) {
    if (auto read = reader_.optional_strings(name, kStringsMax)) values = std::move(*read);
  }

 private:
  static constexpr std::size_t kStringsMax = 1024;

  template <class T>
  std::optional<T> integer(std::string_view name) {
    const auto read = reader_.optional_integer(name, std::numeric_limits<T>::min(),
                                               std::numeric_limits<T>::max());
    if (!read) return std::nullopt;
    return static_cast<T>(*read);
  }

  json::FieldReader& reader_;
};

}  // namespace llorch::contract
