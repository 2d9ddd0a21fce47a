// How every HTTP program of ours answers: JSON, and the contract's envelope for errors.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"
#include "http/message.h"
#include "http/router.h"

namespace llorch::api {

http::Response json_response(int status, const json::Value& body);

// Where trying again makes sense: full, or not there yet, either of which changes within a second
// or so.
void add_retry_after(const Error& error, http::Headers& headers);

// The envelope: what ServerOptions::render_error takes.
http::ErrorBody render_error(const Error& error, std::string_view correlation_id);

// The same as a response, with every failure of a request where there are any.
http::Response error_response(const Error& error, std::string_view correlation_id,
                              std::span<const json::FieldError> errors = {});

// All failures of a request: the envelope with each of them.
http::Response failures_response(const http::Request& request,
                                 std::vector<json::FieldError> errors);

// The same two in OpenAI's form (openai/errors.h).
http::ErrorBody render_openai_error(const Error& error, std::string_view correlation_id);
// What is not there below /v1 is told so, too.
void answer_openai_errors(http::Router& router);
http::Response openai_error_response(const Error& error, std::string_view param = {},
                                     std::string_view code = {});

// The request's body as an object; one that is empty counts as {}.
Result<json::Object> read_body(const http::Request& request);
// The query as an object for a FieldReader: numbers and true/false are what they look like.
json::Object read_query(const http::Request& request);

}  // namespace llorch::api
