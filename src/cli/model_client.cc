#include "cli/model_client.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "cli/ask_fleet.h"
#include "contract/backend_kind.h"
#include "contract/error_table.h"
#include "contract/inference.h"
#include "contract/worker_info.h"
#include "http/client.h"
#include "pool_client/ask_worker.h"

namespace llorch::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPatience{600'000};  // of one answer

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string make_job_id() {
  static std::atomic<std::uint64_t> number = 0;
  return fmt::format("measure-{}-{}", ::getpid(), ++number);
}

json::Object execute_body(const Asked& asked) {
  json::Object body{
      {"max_tokens", asked.max_tokens}, {"temperature", asked.temperature}, {"seed", asked.seed}};
  if (asked.prompt_ids.empty())
    body["prompt"] = asked.prompt;
  else
    body["prompt_ids"] = json::Array(asked.prompt_ids.begin(), asked.prompt_ids.end());
  if (!asked.stop.empty()) body["stop"] = json::Array(asked.stop.begin(), asked.stop.end());
  return body;
}

json::Object chat_body(const Asked& asked) {
  return {{"messages", json::Array{json::Object{{"role", "user"}, {"content", asked.prompt}}}},
          {"max_completion_tokens", asked.max_tokens},
          {"temperature", asked.temperature},
          {"seed", asked.seed}};
}

Result<json::Object> object_of(Result<json::Value> answer) {
  if (!answer.ok()) return answer.error();
  if (!answer->is_object()) return Error{ErrorCode::Internal, "the answer is no JSON object"};
  return std::move(answer->get_object());
}

// How a stream ended that was to be cancelled.
Result<double> judge_cancel(const std::optional<Clock::time_point>& wished,
                            const Result<Heard>& outcome) {
  if (!outcome.ok() && outcome.error().code == ErrorCode::Cancelled && wished)
    return ms_since(*wished);
  if (!outcome.ok()) return outcome.error();
  return Error{ErrorCode::InvalidArgument,
               wished ? "the answer ended by itself before the cancel reached it"
                      : "the answer ended before it was to be cancelled"};
}

}  // namespace

bool HeardReader::take(const http::SseEvent& event) {
  if (event.event == "started") {
    const Result<contract::StartedEvent> started = contract::parse_started_event(event.data);
    if (!started.ok()) {
      error_ = started.error();
      return false;
    }
    has_begun_ = true;
    heard_.prompt_tokens = started->prompt_tokens;
    heard_.cached_tokens = started->cached_tokens;
  } else if (event.event == "token") {
    Result<contract::TokenEvent> token = contract::parse_token_event(event.data);
    if (!token.ok()) {
      error_ = token.error();
      return false;
    }
    heard_.last_ms = now_ms();
    if (heard_.first_ms == 0) heard_.first_ms = heard_.last_ms;
    heard_.text += token->text;
    heard_.ids.insert(heard_.ids.end(), token->ids.begin(), token->ids.end());
    heard_.pieces.push_back(std::move(token->text));
  } else if (event.event == "end") {
    const Result<contract::InferenceResult> end = contract::parse_end_event(event.data);
    if (!end.ok()) {
      error_ = end.error();
      return false;
    }
    heard_.ids.insert(heard_.ids.end(), end->ids.begin(), end->ids.end());
    heard_.stop_reason = contract::name(end->stop_reason);
    heard_.total_ms = now_ms();
    is_complete_ = true;
    return false;
  } else if (event.event == "error") {
    error_ = contract::parse_error_event(event.data);
    return false;
  }
  return true;
}

double HeardReader::now_ms() const {
  return ms_since(asked_);
}

WorkerModel::WorkerModel(std::string uri)
    : uri_(std::move(uri)), calls_({.url = uri_, .who = "the worker"}) {}

Result<ModelFacts> WorkerModel::facts() const {
  const Result<contract::HealthReport> health = pool_client::read_worker_health(uri_);
  if (!health.ok()) return health.error();
  return ModelFacts{.model = health->model,
                    .device = health->device,
                    .build = health->build,
                    .device_class = health->device_class,
                    .quant = health->quant_kind,
                    .context = health->context_length,
                    .slots = health->slots_total,
                    .slots_busy = health->slots_busy,
                    .has_template = health->chat_template};
}

Result<Heard> WorkerModel::execute(
    const Asked& asked, const std::string& job, std::stop_token stop,
    const std::function<void(const HeardReader& so_far)>& on_event) const {
  json::Object body = execute_body(asked);
  body["job_id"] = job;
  http::ClientRequest request(http::Method::Post, uri_ + "/execute");
  request.headers.add("Content-Type", "application/json");
  request.body = json::serialize(body);
  request.total_timeout = kPatience;
  request.stop = std::move(stop);
  HeardReader reader;
  const Result<http::Response> response =
      http::Client().stream_events(request, [&](const http::SseEvent& event) {
        const bool goes_on = reader.take(event);
        on_event(reader);
        return goes_on;
      });
  if (reader.error()) return *reader.error();
  if (reader.is_complete()) return reader.take_heard();
  if (!response.ok()) return response.error();
  if (response->status == 200)
    return Error{ErrorCode::Internal, "the worker broke its answer off before the end"};
  const Result<contract::ErrorReport> report = contract::parse_error_body(response->body);
  return report.ok() ? report->error : report.error();
}

Result<Heard> WorkerModel::ask(const Asked& asked, std::stop_token stop) const {
  return execute(asked, make_job_id(), std::move(stop), [](const HeardReader&) {});
}

Result<double> WorkerModel::cancel_after(const Asked& asked, std::size_t tokens,
                                         std::stop_token stop) const {
  const std::string job = make_job_id();
  std::optional<Clock::time_point> wished;
  const Result<Heard> outcome =
      execute(asked, job, std::move(stop), [&](const HeardReader& so_far) {
        if (wished || !so_far.has_begun() || so_far.heard().pieces.size() < tokens) return;
        if (so_far.is_complete() || so_far.error()) return;
        wished = Clock::now();
        std::ignore = calls_.post("/cancel", {{"job_id", job}});
      });
  return judge_cancel(wished, outcome);
}

Result<json::Object> WorkerModel::chat(const Asked& asked, std::stop_token stop) const {
  return object_of(calls_.post("/v1/chat/completions", chat_body(asked),
                               {.total = kPatience, .stop = std::move(stop)}));
}

json::Object FleetModel::task_of(const Asked& asked) const {
  json::Object body = execute_body(asked);
  body["kind"] = "execute";
  body["model"] = model_;
  if (!host_.empty()) {
    body["mode"] = "pin";
    body["host"] = host_;
  }
  return body;
}

Result<ModelFacts> FleetModel::facts() const {
  const auto list = client_.get<contract::FleetModelList>("/v2/models");
  if (!list.ok()) return list.error();
  ModelFacts facts{.model = model_};
  for (const contract::FleetModel& model : list->models)
    if (model.name == model_) facts.context = model.context;
  const auto workers = client_.get<contract::FleetWorkerList>("/v2/workers");
  if (!workers.ok()) return workers.error();
  for (const contract::FleetWorker& worker : workers->workers) {
    if (worker.model != model_ || (!host_.empty() && worker.host != host_)) continue;
    facts.slots += worker.slots;
    facts.slots_busy += worker.busy;
    if (worker.context > 0) facts.context = worker.context;
    facts.device =
        contract::device_name(worker.device == 0 ? contract::kCpuKind : contract::kCudaKind,
                              static_cast<int>(worker.device) - 1);
  }
  return facts;
}

Result<Heard> FleetModel::ask(const Asked& asked, std::stop_token stop) const {
  HeardReader reader;
  const Result<contract::TaskAccepted> accepted = submit_job(client_, task_of(asked), {});
  if (!accepted.ok()) return accepted.error();
  const Status followed = client_.follow(
      accepted->job_id, "", [&](const http::SseEvent& event) { return reader.take(event); },
      [](const Error&) {}, stop);
  if (reader.error()) return *reader.error();
  if (reader.is_complete()) return reader.take_heard();
  std::ignore = cancel_job(client_, accepted->job_id);
  return followed.ok() ? Error{ErrorCode::Internal, "the answer broke off"} : followed.error();
}

Result<double> FleetModel::cancel_after(const Asked& asked, std::size_t tokens,
                                        std::stop_token stop) const {
  HeardReader reader;
  const Result<contract::TaskAccepted> accepted = submit_job(client_, task_of(asked), {});
  if (!accepted.ok()) return accepted.error();
  std::optional<Clock::time_point> wished;
  const Status followed = client_.follow(
      accepted->job_id, "",
      [&](const http::SseEvent& event) {
        const bool goes_on = reader.take(event);
        if (goes_on && !wished && reader.has_begun() && reader.heard().pieces.size() >= tokens) {
          wished = Clock::now();
          std::ignore = cancel_job(client_, accepted->job_id);
        }
        return goes_on;
      },
      [](const Error&) {}, stop);
  if (reader.error()) return judge_cancel(wished, *reader.error());
  if (!followed.ok()) {
    std::ignore = cancel_job(client_, accepted->job_id);
    return followed.error();
  }
  return judge_cancel(wished, reader.take_heard());
}

Result<json::Object> FleetModel::chat(const Asked& asked, std::stop_token stop) const {
  json::Object body = chat_body(asked);
  body["model"] = model_;
  return object_of(client_.calls().post("/v1/chat/completions", body,
                                        {.total = kPatience, .stop = std::move(stop)}));
}

}  // namespace llorch::cli
