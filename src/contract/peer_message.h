// Reading what another program of ours sent. Private to contract/. Unlike a request, such a message
// may carry fields we do not know (a newer peer); one that lacks what the contract promises is the
// peer's fault: Internal.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"

namespace llorch::contract {

// `what` names the message in errors: "end event".
Result<json::Object> parse_peer_object(std::string_view what, std::string_view text);

// What the reader failed on, unknown fields aside.
std::vector<json::FieldError> finish_tolerantly(json::FieldReader& reader,
                                                const json::Object& object);

// The same as one error.
Status check_peer_object(std::string_view what, json::FieldReader& reader,
                         const json::Object& object);

}  // namespace llorch::contract
