#include "worker_http/answers.h"

#include <utility>

#include "base/utf8.h"
#include "contract/error_table.h"

namespace llorch::worker_http {
namespace {

constexpr std::string_view kJson = "application/json";

std::string_view openai_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

json::Object openai_error_json(const Error& error, std::string_view param, std::string_view code) {
  const contract::ErrorRow& row = contract::error_row(error.code);
  json::Object inner{{"message", base::to_valid_utf8(error.message)},
                     {"type", openai_type(row.status)},
                     {"param", nullptr},
                     {"code", nullptr}};
  if (!param.empty()) inner["param"] = base::to_valid_utf8(param);
  if (!code.empty()) {
    inner["code"] = code;
  } else if (error.code != ErrorCode::InvalidArgument) {
    inner["code"] = row.wire;
  }
  return {{"error", std::move(inner)}};
}

http::ErrorBody render_openai_error(const Error& error, std::string_view) {
  http::ErrorBody body{.status = contract::error_row(error.code).status,
                       .content_type = std::string(kJson),
                       .body = json::serialize(openai_error_json(error)),
                       .headers = {}};
  add_retry_after(error, body.headers);
  return body;
}

http::Response openai_error_response(const Error& error, std::string_view param,
                                     std::string_view code) {
  http::Response response =
      json_response(contract::error_row(error.code).status, openai_error_json(error, param, code));
  add_retry_after(error, response.headers);
  return response;
}

http::Response openai_error_response(const Error& error,
                                     const std::vector<json::FieldError>& errors) {
  return openai_error_response(error, errors.empty() ? std::string_view() : errors[0].field);
}

Status check_content_type(const RequestText& request) {
  return contract::check_json_type(request.content_type);
}

Result<json::Object> parse_json_body(const RequestText& request) {
  return contract::parse_json_body(request.content_type, request.body);
}

}  // namespace llorch::worker_http
