#include "contract/request_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "base/header_text.h"
#include "base/utf8.h"
#include "contract/limits.h"

namespace llorch::contract {

Status check_json_type(std::optional<std::string_view> content_type) {
  if (!content_type || base::is_json_type(*content_type)) return ok_status();
  return Error{ErrorCode::UnsupportedMedia,
               fmt::format("the body must be application/json, not {}; send 'Content-Type: "
                           "application/json'",
                           base::quoted(*content_type))};
}

Result<json::Object> parse_json_body(std::optional<std::string_view> content_type,
                                     std::string_view body) {
  if (Status type = check_json_type(content_type); !type.ok()) return type.error();
  Result<json::Value> parsed = json::parse(body);
  if (!parsed.ok()) return parsed.error();
  if (!parsed->is_object()) {
    return Error{ErrorCode::InvalidArgument, fmt::format("the body must be a JSON object, not {}",
                                                         json::kind_name(parsed.value()))};
  }
  return std::move(parsed->get_object());
}

Error summary_of(std::vector<json::FieldError>& errors) {
  constexpr std::size_t kShownMax = 8;
  const std::size_t count = errors.size();
  if (count > kFieldErrorsMax) errors.resize(kFieldErrorsMax);
  std::string text;
  for (std::size_t i = 0; i < std::min(count, kShownMax); ++i) {
    fmt::format_to(std::back_inserter(text), "{}{} {}", i == 0 ? "" : "; ", errors[i].field,
                   errors[i].message);
  }
  if (count > kShownMax)
    fmt::format_to(std::back_inserter(text), "; and {} more", count - kShownMax);
  return {ErrorCode::InvalidArgument, std::move(text)};
}

}  // namespace llorch::contract
