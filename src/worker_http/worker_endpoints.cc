#include "worker_http/worker_endpoints.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "base/json_fields.h"
#include "base/log.h"
#include "base/timestamp.h"
#include "base/version.h"
#include "contract/error_table.h"
#include "contract/limits.h"
#include "contract/worker_api.h"
#include "contract/worker_info.h"
#include "http/sse.h"
#include "worker_http/answers.h"

namespace llorch::worker_http {
namespace {

const base::Logger& logger() {
  static const base::Logger instance("worker_http");
  return instance;
}

contract::WorkerStatus status_of(LoadStatus::State state) {
  switch (state) {
    case LoadStatus::State::Loading:
      return contract::WorkerStatus::Loading;
    case LoadStatus::State::Healthy:
      return contract::WorkerStatus::Healthy;
    case LoadStatus::State::Unhealthy:
      return contract::WorkerStatus::Unhealthy;
    case LoadStatus::State::Draining:
      return contract::WorkerStatus::Draining;
  }
  return contract::WorkerStatus::Unhealthy;
}

void describe_model(const ModelInfo& model, contract::HealthReport& report) {
  report.model_loaded = true;
  report.model = model.id;
  report.architecture = model.architecture;
  report.quant_kind = model.quant_kind;
  report.tokenizer_kind = model.tokenizer_kind;
  report.backend = model.backend;
  report.device = model.device;
  report.device_class = model.device_class;
  report.build = model.build;
  report.memory_type = model.memory_type;
  report.memory_bytes = model.memory_bytes;
  report.vocab_size = model.vocab_size;
  report.context_length = model.context_length;
  report.chat_template = model.has_chat_template;
  if (model.vram) {
    report.vram_bytes = model.vram->taken_bytes();
    report.sm = model.vram->sm;
    report.cuda_runtime_version = model.vram->cuda_runtime_version;
    report.vram_total = model.vram->total_bytes;
    report.resident = model.vram->is_resident;
  }
}

// Reads a body as it is described; `check` may refuse more of it. Failures become the answer.
template <class T, class Check, class Answer>
http::Response answer_fields(const RequestText& request, Check check, Answer answer) {
  const Result<json::Object> body = parse_json_body(request);
  if (!body.ok()) return error_response(body.error(), request.correlation_id, {});
  json::FieldReader reader(*body);
  contract::FieldTaker taker(reader);
  T fields;
  describe(taker, fields);
  check(reader, fields);
  std::vector<json::FieldError> errors = reader.finish();
  if (!errors.empty()) {
    const Error error = summary_of(errors);
    return error_response(error, request.correlation_id, errors);
  }
  return answer(fields);
}
template <class T, class Answer>
http::Response answer_fields(const RequestText& request, Answer answer) {
  return answer_fields<T>(
      request, [](const json::FieldReader&, const T&) {}, answer);
}

http::Response refuse_tokens(const RequestText& request, const Error& error) {
  std::vector<json::FieldError> errors;
  if (error.code == ErrorCode::InvalidArgument)
    errors.push_back({"tokens", "ids of the vocabulary", error.message, {}});
  return error_response(error, request.correlation_id, errors);
}

std::string sse(std::string_view event, const json::Object& data) {
  return http::format_event(event, json::serialize(data));
}

// The events of one /execute as text, in their order.
class ExecuteEvents {
 public:
  ExecuteEvents(std::string_view job_id, std::string_view model) : job_id_(job_id), model_(model) {}

  // Empty: nothing to say.
  std::string text_of(JobEvent event) {
    if (const auto* started = std::get_if<contract::StartedEvent>(&event.what)) {
      has_started_ = true;
      return sse("started", contract::started_event_json(*started));
    }
    if (const auto* told = std::get_if<openai::ToldText>(&event.what)) {
      for (const TextPiece& piece : told->pieces) index_ += piece.text.empty() ? 0 : 1;
      return {};
    }
    if (auto* piece = std::get_if<TextPiece>(&event.what)) return token(std::move(*piece));
    auto& result = std::get<GenerationResult>(event.what);
    if (!result.ok()) return error(result.error());
    ids_.insert(ids_.end(), result->ids.begin(), result->ids.end());
    result->ids = std::move(ids_);
    return sse("end", contract::end_event_json(*result));
  }

 private:
  // One that ended while it waited has no seed and no place in the cache to tell.
  std::string error(const Error& error) const {
    std::string text;
    if (!has_started_) {
      text = sse("started", {{"job_id", job_id_},
                             {"model", model_},
                             {"started_at", base::to_rfc3339(std::chrono::system_clock::now())}});
    }
    return text + sse("error", contract::error_event_json(error));
  }

  std::string token(TextPiece piece) {
    ids_.insert(ids_.end(), piece.ids.begin(), piece.ids.end());
    if (piece.text.empty()) return {};
    contract::TokenEvent event{std::move(piece.text), index_++};
    if (!piece.is_tail) event.ids = std::exchange(ids_, {});
    return sse("token", contract::token_event_json(event));
  }

  const std::string job_id_;
  const std::string model_;
  bool has_started_ = false;
  std::int64_t index_ = 0;         // of the next token event
  std::vector<std::int32_t> ids_;  // that no event has told yet
};

void log_end(const http::Request& request, std::string_view job_id,
             const GenerationResult& result) {
  if (!result.ok()) {
    logger().info("job failed", {{"job_id", job_id},
                                 {"correlation_id", request.correlation_id},
                                 {"code", contract::error_row(result.error().code).wire}});
    return;
  }
  logger().info("job done", {{"job_id", job_id},
                             {"correlation_id", request.correlation_id},
                             {"stop_reason", contract::name(result->stop_reason)},
                             {"prompt_tokens", result->prompt_tokens},
                             {"tokens_out", result->tokens_out},
                             {"prefill_ms", result->prefill_ms},
                             {"decode_time_ms", result->decode_time_ms},
                             {"ttft_ms", result->ttft_ms}});
}

// A job of /execute that was accepted, or the answer that refuses it.
struct AcceptedJob {
  std::string job_id;
  std::unique_ptr<Generations> generations;
};
using ExecuteOutcome = std::variant<AcceptedJob, http::Response>;

Error client_gone(const http::Request& request, std::string_view job_id) {
  logger().info("client gone, job cancelled",
                {{"job_id", job_id}, {"correlation_id", request.correlation_id}});
  return {ErrorCode::Cancelled, "the client is gone"};
}

const GenerationResult* result_of(const JobFeed::Next& next) {
  return next.item ? std::get_if<GenerationResult>(&next.item->what) : nullptr;
}

// `next`: the first event, or none within the time that a client is left without a byte.
http::Task<Status> stream_events(ServicePtr service, const http::Request& request,
                                 http::Stream& stream, const AcceptedJob& job, JobFeed::Next next) {
  const ModelInfo* model = service->backend.model();
  ExecuteEvents events(job.job_id, model != nullptr ? model->id : std::string());
  while (!next.ended) {
    const std::string text =
        next.item ? events.text_of(*next.item) : std::string(http::kKeepAliveComment);
    if (!text.empty()) {
      Status written = co_await stream.write(text);
      if (!written.ok()) break;
    }
    if (const GenerationResult* result = result_of(next)) {
      log_end(request, job.job_id, *result);
      co_return ok_status();
    }
    next = co_await job.generations->feed().next(service->settings.keep_alive);
  }
  co_return client_gone(request, job.job_id);
}

http::Response refuse(const Service& service, const RequestText& request, const Error& error,
                      std::span<const json::FieldError> errors = {}) {
  service.metrics->count(outcome_of_refusal(error));
  return error_response(error, request.correlation_id, errors);
}

http::Response refuse(const Service& service, const RequestText& request,
                      const PrepareError& refused, const TextRequest::Prompt& prompt) {
  using Blame = PrepareError::Blame;
  std::vector<json::FieldError> errors;
  const bool came_as_ids = prompt.kind == TextRequest::Prompt::Kind::Ids;
  if (came_as_ids && refused.blame == Blame::Other &&
      refused.error.code == ErrorCode::InvalidArgument)
    errors.push_back({"prompt_ids", "ids of the vocabulary", refused.error.message, {}});
  if (refused.blame == Blame::Context)
    errors.push_back({came_as_ids ? "prompt_ids" : "prompt",
                      "prompt + max_tokens <= context",
                      refused.error.message,
                      {}});
  if (refused.blame == Blame::Told)
    errors.push_back({"resume.ids", "ids of this request", refused.error.message, {}});
  if (refused.blame == Blame::MaxTokens)
    errors.push_back({"max_tokens", "max_tokens <= context", refused.error.message, {}});
  return refuse(service, request, refused.error, errors);
}

// All of a job up to its place in the queue; on a work thread.
ExecuteOutcome accept_job(const Service& service, const RequestText& request, TextRequest text,
                          const base::WorkLimit& limit) {
  if (const Status type = check_content_type(request); !type.ok())
    return refuse(service, request, type.error());
  std::vector<json::FieldError> errors;
  Result<contract::InferenceRequest> parsed =
      contract::parse_inference_request(request.body, errors);
  if (!parsed.ok()) return refuse(service, request, parsed.error(), errors);
  const std::string job_id = parsed->job_id;
  text.job_id = job_id;
  text.prompt.text = std::move(parsed->prompt);
  if (parsed->prompt_ids) {
    text.prompt.kind = TextRequest::Prompt::Kind::Ids;
    text.prompt.ids = std::move(*parsed->prompt_ids);
  }
  if (parsed->resume_ids) text.told = std::move(*parsed->resume_ids);
  text.sampling = std::move(parsed->sampling);
  Preparation prepared = service.backend.prepare(text, limit);
  if (const auto* refused = std::get_if<PrepareError>(&prepared))
    return refuse(service, request, *refused, text.prompt);
  text.prepared = std::get<PreparedPtr>(std::move(prepared));
  if (!text.told.empty()) {
    if (const auto refused = service.backend.check_told(text, limit))
      return refuse(service, request, *refused, text.prompt);
  }
  text.prompt = {};
  AcceptedJob job{job_id, std::make_unique<Generations>(service, 1)};
  std::vector<TextRequest> requests;
  requests.push_back(std::move(text));
  const Status submitted = job.generations->submit(std::move(requests));
  if (!submitted.ok()) return refuse(service, request, submitted.error());
  return job;
}

}  // namespace

http::Response answer_health(const Service& service, const RequestText&) {
  const LoadStatus status = service.backend.status();
  const WorkerStats stats = service.backend.stats();
  contract::HealthReport report;
  report.status = status_of(status.state);
  report.reason = status.reason;
  if (status.state == LoadStatus::State::Loading) report.load_progress = status.load_progress;
  if (const ModelInfo* model = service.backend.model()) describe_model(*model, report);
  report.version = base::version();
  report.uptime_seconds = stats.uptime_seconds;
  report.queue_depth = stats.queue_depth;
  report.slots_total = stats.slots_total;
  report.slots_busy = stats.slots_busy;
  report.kv_blocks_total = stats.kv_blocks_total;
  report.kv_blocks_free = stats.kv_blocks_free;
  report.last_token_age_ms = stats.last_token_age_ms;
  return json_response(contract::http_status(report.status), contract::to_json(report));
}

http::Response answer_metrics(const Service& service, const RequestText&, const base::WorkLimit&) {
  return {200, std::string(api::kMetricsType), service.metrics->render(service.backend)};
}

http::Response answer_shutdown(const Service& service, const RequestText& request) {
  const auto shut_down = [&](const contract::ShutdownRequest& wanted) {
    std::optional<std::chrono::seconds> patience;
    if (wanted.timeout_sec) patience = std::chrono::seconds(*wanted.timeout_sec);
    service.backend.request_shutdown(patience);
    return json_response(202, contract::write_fields(contract::ShutdownAnswer{}));
  };
  if (request.body.empty()) return shut_down({});
  return answer_fields<contract::ShutdownRequest>(request, shut_down);
}

http::Response answer_cancel(const Service& service, const RequestText& request) {
  return answer_fields<contract::CancelRequest>(
      request, [&](const contract::CancelRequest& wanted) {
        const Status cancelled = service.backend.cancel(wanted.job_id);
        if (!cancelled.ok()) return error_response(cancelled.error(), request.correlation_id, {});
        return json_response(202, contract::write_fields(contract::CancelAnswer{wanted.job_id}));
      });
}

http::Response answer_tokenize(const Service& service, const RequestText& request,
                               const base::WorkLimit& limit) {
  return answer_fields<contract::TokenizeRequest>(request, [&](const contract::TokenizeRequest&
                                                                   wanted) {
    Result<TokenizedText> tokens = service.backend.tokenize(
        wanted.text, wanted.add_special, wanted.special || wanted.parse_special, limit);
    if (!tokens.ok()) return error_response(tokens.error(), request.correlation_id, {});
    const std::size_t count = tokens->ids.size();
    const contract::TokenizeAnswer answer{std::move(tokens->ids), std::move(tokens->pieces), count};
    return json_response(200, contract::write_fields(answer));
  });
}

http::Response answer_detokenize(const Service& service, const RequestText& request,
                                 const base::WorkLimit& limit) {
  const auto check = [](json::FieldReader& reader, const contract::DetokenizeRequest& wanted) {
    constexpr std::size_t kMost = contract::kDetokenizeIdsMax;
    if (wanted.tokens.size() <= kMost) return;
    reader.fail("tokens", fmt::format("at most {} ids", kMost),
                fmt::format("has {} ids, more than {}", wanted.tokens.size(), kMost));
  };
  return answer_fields<contract::DetokenizeRequest>(
      request, check, [&](const contract::DetokenizeRequest& wanted) {
        if (const Status begins = limit.check(); !begins.ok())
          return error_response(begins.error(), request.correlation_id, {});
        Result<std::string> text = service.backend.detokenize(wanted.tokens);
        if (!text.ok()) return refuse_tokens(request, text.error());
        return json_response(200, contract::write_fields(contract::DetokenizeAnswer{text.take()}));
      });
}

http::Task<Status> execute(ServicePtr service, const http::Request& request,
                           http::Responder& responder) {
  RequestWork work(service, request, responder);
  TextRequest text;
  text.arrived = work.arrived();
  text.deadline = work.deadline();
  std::function<Result<ExecuteOutcome>(const base::WorkLimit&)> accept =
      [&with = *service, body = text_of(request), text](const base::WorkLimit& limit) {
        return accept_job(with, body, text, limit);
      };
  Result<ExecuteOutcome> outcome = co_await work.read<ExecuteOutcome>(std::move(accept));
  if (!outcome.ok()) co_return outcome.error();
  if (auto* refusal = std::get_if<http::Response>(&*outcome))
    co_return co_await responder.send(std::move(*refusal));
  const AcceptedJob job = std::get<AcceptedJob>(outcome.take());
  job.generations->abandon_on_disconnect(responder);
  JobFeed::Next first = co_await job.generations->feed().next(service->settings.keep_alive);
  if (first.ended) co_return client_gone(request, job.job_id);
  // Ended while it waited, and nothing was sent: that has a status of its own.
  if (const GenerationResult* result = result_of(first); result != nullptr && !result->ok()) {
    log_end(request, job.job_id, *result);
    co_return result->error();
  }
  http::Headers headers;
  headers.add("Cache-Control", "no-store");
  Result<http::Stream> stream =
      co_await responder.open_stream(200, std::string(http::kEventStreamType), std::move(headers));
  if (!stream.ok()) co_return stream.error();
  co_return co_await stream_events(service, request, *stream, job, std::move(first));
}

}  // namespace llorch::worker_http
