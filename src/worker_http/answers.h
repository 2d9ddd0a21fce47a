// How answers and errors of this API look: api's, and OpenAI's envelope. Private to worker_http/.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/answers.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"
#include "contract/request_body.h"
#include "http/message.h"
#include "worker_http/service.h"

namespace llorch::worker_http {

using api::add_retry_after;
using api::error_response;
using api::json_response;
using api::openai_error_response;
using contract::summary_of;

// See contract/request_body.h.
Status check_content_type(const RequestText& request);
Result<json::Object> parse_json_body(const RequestText& request);

}  // namespace llorch::worker_http
