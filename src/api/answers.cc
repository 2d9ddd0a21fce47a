#include "api/answers.h"

#include <string>
#include <utility>

#include "contract/error_table.h"
#include "openai/errors.h"

namespace llorch::api {
namespace {

constexpr std::string_view kJson = "application/json";

}  // namespace

http::Response json_response(int status, const json::Value& body) {
  return {status, std::string(kJson), json::serialize(body)};
}

void add_retry_after(const Error& error, http::Headers& headers) {
  if (error.code == ErrorCode::QueueFull || error.code == ErrorCode::Unavailable)
    headers.set("Retry-After", "1");
}

http::ErrorBody render_error(const Error& error, std::string_view correlation_id) {
  contract::RenderedError rendered = contract::render_error(error, correlation_id);
  http::ErrorBody body{.status = rendered.status,
                       .content_type = std::string(kJson),
                       .body = std::move(rendered.body),
                       .headers = {}};
  add_retry_after(error, body.headers);
  return body;
}

http::Response error_response(const Error& error, std::string_view correlation_id,
                              std::span<const json::FieldError> errors) {
  contract::RenderedError rendered = contract::render_error(error, correlation_id, errors);
  http::Response response(rendered.status, std::string(kJson), std::move(rendered.body));
  add_retry_after(error, response.headers);
  return response;
}

http::ErrorBody render_openai_error(const Error& error, std::string_view) {
  http::ErrorBody body{.status = contract::error_row(error.code).status,
                       .content_type = std::string(kJson),
                       .body = json::serialize(openai::error_json(error)),
                       .headers = {}};
  add_retry_after(error, body.headers);
  return body;
}

http::Response openai_error_response(const Error& error, std::string_view param,
                                     std::string_view code) {
  http::Response response =
      json_response(contract::error_row(error.code).status, openai::error_json(error, param, code));
  add_retry_after(error, response.headers);
  return response;
}

}  // namespace llorch::api
