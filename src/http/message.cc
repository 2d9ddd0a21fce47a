#include "http/message.h"

#include <algorithm>

#include "base/enum_names.h"

namespace llorch::http {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::string_view method_name(Method method) {
  static constexpr base::EnumNames<Method::Other> kNames("GET", "HEAD", "POST", "PUT", "PATCH",
                                                         "DELETE", "OPTIONS", "OTHER");
  return kNames[method];
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

void Headers::add(std::string name, std::string value) {
  fields_.emplace_back(std::move(name), std::move(value));
}

void Headers::set(std::string_view name, std::string value) {
  std::erase_if(fields_,
                [name](const Field& field) { return equals_ignoring_case(field.first, name); });
  add(std::string(name), std::move(value));
}

std::optional<std::string_view> Headers::find(std::string_view name) const {
  for (const Field& field : fields_) {
    if (equals_ignoring_case(field.first, name)) return field.second;
  }
  return std::nullopt;
}

std::size_t Headers::count(std::string_view name) const {
  return static_cast<std::size_t>(std::count_if(
      fields_.begin(), fields_.end(),
      [name](const Field& field) { return equals_ignoring_case(field.first, name); }));
}

Response::Response(int code, std::string content_type, std::string content)
    : status(code), body(std::move(content)) {
  headers.add("Content-Type", std::move(content_type));
}

}  // namespace llorch::http
