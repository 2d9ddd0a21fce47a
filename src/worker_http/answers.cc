#include "worker_http/answers.h"

namespace llorch::worker_http {

Status check_content_type(const RequestText& request) {
  return contract::check_json_type(request.content_type);
}

Result<json::Object> parse_json_body(const RequestText& request) {
  return contract::parse_json_body(request.content_type, request.body);
}

}  // namespace llorch::worker_http
