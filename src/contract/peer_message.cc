#include "contract/peer_message.h"

#include <fmt/format.h>

namespace llorch::contract {

Result<json::Object> parse_peer_object(std::string_view what, std::string_view text) {
  Result<json::Value> parsed = json::parse(text);
  if (!parsed.ok())
    return Error{ErrorCode::Internal,
                 fmt::format("malformed {}: {}", what, parsed.error().message)};
  if (!parsed->is_object()) return not_an_object(what, *parsed);
  return std::move(parsed->get_object());
}

Error not_an_object(std::string_view what, const json::Value& value) {
  return {ErrorCode::Internal,
          fmt::format("malformed {}: expected an object, found {}", what, json::kind_name(value))};
}

Status check_peer_object(std::string_view what, json::FieldReader& reader) {
  reader.ignore_others();
  const std::vector<json::FieldError> errors = reader.finish();
  if (errors.empty()) return ok_status();
  return Error{ErrorCode::Internal,
               fmt::format("malformed {}: {} {}", what, errors[0].field, errors[0].message)};
}

}  // namespace llorch::contract
