#include "pool_client/ask_worker.h"

#include <algorithm>
#include <vector>

#include "base/json.h"
#include "contract/error_table.h"
#include "http/client.h"
#include "http/sse.h"
#include "pool_client/answer_reader.h"

namespace llorch::pool_client {
namespace {

const json::Value* member(const json::Value* value, std::string_view name) {
  const json::Object* object = value != nullptr ? value->if_object() : nullptr;
  return object != nullptr ? object->if_contains(name) : nullptr;
}

Error refusal_of(const http::Response& response, bool is_chat) {
  if (is_chat) {
    const Result<json::Value> body = json::parse(response.body);
    const json::Value* error = body.ok() ? member(&*body, "error") : nullptr;
    if (error != nullptr) return read_openai_error(*error);
  }
  const Result<contract::ErrorReport> report = contract::parse_error_body(response.body);
  return report.ok() ? report->error : report.error();
}

}  // namespace

Status ask_worker(const Question& question, const OnAnswerText& on_text, const CallLimits& limits,
                  Answer& answer) {
  const json::Object body = question_body(question, answer);
  http::ClientRequest request(
      http::Method::Post, question.uri + (answer.is_chat ? "/v1/chat/completions" : "/execute"));
  request.headers.add("Content-Type", "application/json");
  request.body = json::serialize(body);
  request.total_timeout = limits.total;
  request.stop = limits.stop;
  AnswerReader reader(question, on_text, answer);
  const Result<http::Response> response = http::Client().stream_events(
      request, [&reader](const http::SseEvent& event) { return reader.take(event); });
  if (reader.error()) return *reader.error();
  if (!response.ok()) return response.error();
  if (response->status != 200) return refusal_of(*response, answer.is_chat);
  if (!reader.is_complete())
    return Error{ErrorCode::Internal, "the worker broke its answer off before the end"};
  return ok_status();
}

Result<contract::HealthReport> read_worker_health(const std::string& uri,
                                                  const CallLimits& limits) {
  http::ClientRequest request(http::Method::Get, uri + "/health");
  request.total_timeout = limits.total;
  request.stop = limits.stop;
  const Result<http::Response> response = http::Client().send(request);
  if (!response.ok()) return response.error();
  return contract::parse_health_report(response->body);
}

bool is_context_overflow(const Error& error) {
  return error.code == ErrorCode::TooLarge;
}

}  // namespace llorch::pool_client
