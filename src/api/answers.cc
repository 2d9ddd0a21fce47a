#include "api/answers.h"

#include <charconv>
#include <string>
#include <utility>

#include "contract/error_table.h"
#include "contract/request_body.h"
#include "openai/errors.h"

namespace llorch::api {
namespace {

constexpr std::string_view kJson = "application/json";

json::Value query_value(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  if (!text.empty() && error == std::errc() && at == end) return number;
  if (error != std::errc::result_out_of_range || at != end) return json::Value(text);
  // Too large for that, and still a number: whoever reads it says the range.
  std::uint64_t large = 0;
  if (std::from_chars(text.data(), end, large).ec == std::errc()) return large;
  double larger = 0;
  std::from_chars(text.data(), end, larger);
  return larger;
}

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

http::Response failures_response(const http::Request& request,
                                 std::vector<json::FieldError> errors) {
  const Error error = contract::summary_of(errors);
  return error_response(error, request.correlation_id, errors);
}

http::ErrorBody render_openai_error(const Error& error, std::string_view) {
  http::ErrorBody body{.status = contract::error_row(error.code).status,
                       .content_type = std::string(kJson),
                       .body = json::serialize(openai::error_json(error)),
                       .headers = {}};
  add_retry_after(error, body.headers);
  return body;
}

void answer_openai_errors(http::Router& router) {
  http::RouteOptions options;
  options.render_error = render_openai_error;
  router.answer_below("/v1", std::move(options));
}

http::Response openai_error_response(const Error& error, std::string_view param,
                                     std::string_view code) {
  http::Response response =
      json_response(contract::error_row(error.code).status, openai::error_json(error, param, code));
  add_retry_after(error, response.headers);
  return response;
}

Result<json::Object> read_body(const http::Request& request) {
  if (request.body.empty()) return json::Object();
  return contract::parse_json_body(request.headers.find("Content-Type"), request.body);
}

json::Object read_query(const http::Request& request) {
  json::Object object;
  for (const auto& [name, text] : request.query) object[name] = query_value(text);
  return object;
}

}  // namespace llorch::api
