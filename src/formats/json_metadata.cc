#include "formats/json_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

namespace llorch::formats {
namespace {

constexpr std::size_t kFileBytesMax = 16U << 20;
// Flattening repeats an outer key in every inner one: without a bound, a file could grow by its own
// square.
constexpr std::size_t kKeyBytesMax = 1024;

template <class T>
void append(std::vector<std::byte>& out, T value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <class Predicate>
bool all(const json::Array& array, Predicate holds) {
  return std::all_of(array.begin(), array.end(), holds);
}

// The element type that holds all elements without loss of meaning; Array when there is none.
ElementType common_type(const json::Array& array) {
  if (all(array, [](const json::Value& v) { return v.is_int64(); })) return ElementType::I64;
  const auto is_unsigned = [](const json::Value& v) {
    return v.is_uint64() || (v.is_int64() && v.get_int64() >= 0);
  };
  if (all(array, is_unsigned)) return ElementType::U64;
  if (all(array, [](const json::Value& v) { return v.is_number(); })) return ElementType::F64;
  if (all(array, [](const json::Value& v) { return v.is_string(); })) return ElementType::String;
  if (all(array, [](const json::Value& v) { return v.is_bool(); })) return ElementType::Bool;
  return ElementType::Array;
}

std::vector<std::byte> pack(const json::Array& array, ElementType type) {
  std::vector<std::byte> out;
  for (const json::Value& value : array) {
    if (type == ElementType::I64) append(out, value.get_int64());
    if (type == ElementType::U64) append(out, value.to_number<std::uint64_t>());
    if (type == ElementType::F64) append(out, value.to_number<double>());
    if (type == ElementType::Bool) append(out, static_cast<std::uint8_t>(value.get_bool()));
    if (type == ElementType::String) {
      const std::string_view text = json::view(value.get_string());
      append(out, std::uint64_t{text.size()});
      const auto bytes = std::as_bytes(std::span(text));
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
  }
  return out;
}

Status add_value(const json::Value& value, const std::string& key, Metadata& metadata);

Status add_object(const json::Object& object, const std::string& key, Metadata& metadata) {
  for (const auto& field : object) {
    const std::string field_key = fmt::format("{}.{}", key, json::view(field.key()));
    if (Status added = add_value(field.value(), field_key, metadata); !added.ok()) return added;
  }
  return ok_status();
}

Status add_array(const json::Array& array, const std::string& key, Metadata& metadata) {
  const ElementType type = common_type(array);
  if (type != ElementType::Array) {
    return metadata.add(key, ArrayView{type, array.size(), metadata.adopt(pack(array, type))});
  }
  for (std::size_t i = 0; i < array.size(); ++i) {
    if (Status added = add_value(array[i], fmt::format("{}.{}", key, i), metadata); !added.ok())
      return added;
  }
  return ok_status();
}

// Recursion is bounded by the parser's depth limit.
Status add_value(const json::Value& value, const std::string& key, Metadata& metadata) {
  if (key.size() > kKeyBytesMax) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("a key of {} bytes, more than the {} allowed: {}…", key.size(),
                             kKeyBytesMax, base::quoted(std::string_view(key).substr(0, 60)))};
  }
  if (const json::Object* object = value.if_object()) return add_object(*object, key, metadata);
  if (const json::Array* array = value.if_array()) return add_array(*array, key, metadata);
  if (const bool* flag = value.if_bool()) return metadata.add(key, *flag);
  if (const std::int64_t* number = value.if_int64()) return metadata.add(key, *number);
  if (const std::uint64_t* number = value.if_uint64()) return metadata.add(key, *number);
  if (const double* number = value.if_double()) return metadata.add(key, *number);
  if (value.is_string()) return metadata.add(key, std::string(json::view(value.get_string())));
  metadata.add_null(key);
  return ok_status();
}

}  // namespace

Status add_json_metadata(std::string_view text, std::string_view prefix, Metadata& metadata) {
  const Result<json::Value> parsed = json::parse(text, {.max_bytes = kFileBytesMax});
  if (!parsed.ok()) return Error{ErrorCode::Corrupt, parsed.error().message};
  const json::Object* object = parsed->if_object();
  if (object == nullptr) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("expected a JSON object, found {}", json::kind_name(*parsed))};
  }
  return add_object(*object, std::string(prefix), metadata);
}

Status read_json_metadata(const std::filesystem::path& path, std::string_view prefix,
                          Metadata& metadata) {
  const Result<std::string> text = base::read_text_file(path, kFileBytesMax);
  if (!text.ok()) return text.error();
  if (Status added = add_json_metadata(*text, prefix, metadata); !added.ok())
    return added.error().in(path.string());
  return ok_status();
}

}  // namespace llorch::formats
