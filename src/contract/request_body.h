// A request's body as every server of ours reads it, and all of its failures as one error.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"

namespace llorch::contract {

// UnsupportedMedia when the request says that its body is something else than JSON. (A web page
// can send plain text and forms to any address without asking; JSON it cannot.) `content_type`: the
// header's value, none when it was not sent.
Status check_json_type(std::optional<std::string_view> content_type);

// The body as a JSON object.
Result<json::Object> parse_json_body(std::optional<std::string_view> content_type,
                                     std::string_view body);

// All failures of a request as one error, no more of them than anybody reads; longer lists are cut.
Error summary_of(std::vector<json::FieldError>& errors);

}  // namespace llorch::contract
