#include "contract/peer_message.h"

#include <fmt/format.h>

namespace llorch::contract {

Result<json::Object> parse_peer_object(std::string_view what, std::string_view text) {
  Result<json::Value> parsed = json::parse(text);
  if (!parsed.ok())
    return Error{ErrorCode::Internal,
                 fmt::format("malformed {}: {}", what, parsed.error().message)};
  if (!parsed->is_object()) {
    return Error{ErrorCode::Internal, fmt::format("malformed {}: expected an object, found {}",
                                                  what, json::kind_name(parsed.value()))};
  }
  return std::move(parsed->get_object());
}

std::vector<json::FieldError> finish_tolerantly(json::FieldReader& reader,
                                                const json::Object& object) {
  for (const auto& field : object) reader.ignore(json::view(field.key()));
  return reader.finish();
}

Status check_peer_object(std::string_view what, json::FieldReader& reader,
                         const json::Object& object) {
  const std::vector<json::FieldError> errors = finish_tolerantly(reader, object);
  if (errors.empty()) return ok_status();
  return Error{ErrorCode::Internal,
               fmt::format("malformed {}: {} {}", what, errors[0].field, errors[0].message)};
}

}  // namespace llorch::contract
