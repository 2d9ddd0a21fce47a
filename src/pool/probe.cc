#include "pool/probe.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "base/job_border.h"
#include "base/thread.h"
#include "contract/error_table.h"
#include "http/sse.h"

namespace llorch::pool {
namespace {

constexpr std::size_t kJobsMax = 4096;
constexpr std::int64_t kRecentMs = 3'000;  // a token so young: its counters have changed
constexpr std::size_t kAnswerBytesMax = std::size_t{1} << 20;
// Nobody else may use it: one of a kind at a time, and told apart in the worker's log.
constexpr std::string_view kTokenRequest =
    R"({"job_id":"llorch-pool.probe","prompt":"a","max_tokens":1})";

// Our own lack of memory or descriptors says nothing about the worker.
ProbeResult not_asked(const ProbeJob& job) {
  ProbeResult result;
  result.job = job;
  result.health = Error{ErrorCode::QueueFull, "it could not be asked"};
  return result;
}

}  // namespace

std::optional<double> find_metric(std::string_view page, std::string_view name) {
  const std::string wanted = "\n" + std::string(name) + " ";
  const std::size_t at = page.find(wanted);
  if (at == std::string_view::npos) return std::nullopt;
  page.remove_prefix(at + wanted.size());
  double value = 0;
  const auto [end, error] = std::from_chars(page.data(), page.data() + page.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

Prober::Prober(int num_threads, VramOf vram_of, std::function<void(ProbeResult)> on_result)
    : vram_of_(std::move(vram_of)), on_result_(std::move(on_result)), jobs_(kJobsMax) {
  for (int i = 0; i < num_threads; ++i)
    threads_.push_back(base::start_thread("probe", [this] { run(); }));
}

Prober::~Prober() {
  jobs_.close_and_clear();
  stop_.request_stop();
  threads_.clear();  // joins
}

void Prober::submit(ProbeJob job) {
  ProbeResult refusal = not_asked(job);
  if (!jobs_.try_push(std::move(job))) on_result_(std::move(refusal));
}

ProbeResult Prober::ask_now(const ProbeJob& job) {
  Result<ProbeResult> result =
      base::run_job<ProbeResult>("while a worker was asked", [&] { return answer(job); });
  return result.ok() ? result.take() : not_asked(job);
}

void Prober::run() {
  while (const std::optional<ProbeJob> job = jobs_.pop()) on_result_(ask_now(*job));
}

ProbeResult Prober::answer(const ProbeJob& job) {
  ProbeResult result;
  result.job = job;
  switch (job.kind) {
    case ProbeJob::Kind::Health:
      result.health = ask_health(job, result);
      break;
    case ProbeJob::Kind::Token:
      result.token_failed = ask_token(job);
      break;
    case ProbeJob::Kind::Shutdown:
      result.shutdown_failed = !ask_shutdown(job);
      break;
    case ProbeJob::Kind::Memory:
      break;
  }
  if (job.pid > 0) {
    result.memory = base::read_process_memory(job.pid);
    if (job.gpu) result.vram_bytes = vram_of_(*job.gpu, job.pid);
  }
  return result;
}

http::ClientRequest Prober::request_to(const ProbeJob& job, http::Method method,
                                       std::string_view path) const {
  http::ClientRequest request(method, fmt::format("http://127.0.0.1:{}{}", job.port, path));
  request.connect_timeout = job.timeout;
  request.total_timeout = job.timeout;
  request.idle_timeout = job.timeout;
  request.max_response_bytes = kAnswerBytesMax;
  request.stop = stop_.get_token();
  return request;
}

Result<HealthAnswer> Prober::ask_health(const ProbeJob& job, ProbeResult& result) {
  const Result<http::Response> response =
      client_.send(request_to(job, http::Method::Get, "/health"));
  if (!response.ok()) return response.error();
  Result<contract::HealthReport> report = contract::parse_health_report(response->body);
  if (!report.ok() && response->status == 503 && contract::parse_error_body(response->body).ok())
    return Error{ErrorCode::QueueFull, "all of its connections are in use"};
  if (!report.ok()) return report.error();
  HealthAnswer answer{report.take(), std::nullopt};
  const bool has_worked = answer.report.last_token_age_ms.value_or(kRecentMs) < kRecentMs;
  if (!job.with_metrics && !has_worked && answer.report.slots_busy == 0) return answer;
  const Result<http::Response> page = client_.send(request_to(job, http::Method::Get, "/metrics"));
  if (!page.ok()) return page.error();
  if (const auto steps = find_metric(page->body, "llorch_steps_total"))
    answer.steps = static_cast<std::int64_t>(*steps);
  result.counters = read_counters(page->body);
  result.tokens_per_second = find_metric(page->body, "llorch_decode_tokens_per_second").value_or(0);
  return answer;
}

bool Prober::ask_shutdown(const ProbeJob& job) {
  http::ClientRequest request = request_to(job, http::Method::Post, "/shutdown");
  request.headers.set("Content-Type", "application/json");
  request.body = fmt::format(R"({{"timeout_sec":{}}})", job.drain_time.count());
  const Result<http::Response> response = client_.send(request);
  return response.ok() && response->status < 300;
}

// True when no token came in time. A refusal (it is full, it drains) is a sign of life.
bool Prober::ask_token(const ProbeJob& job) {
  http::ClientRequest request = request_to(job, http::Method::Post, "/execute");
  request.headers.add("Content-Type", "application/json");
  request.body = kTokenRequest;
  bool has_token = false;
  const Result<http::Response> response =
      client_.stream_events(request, [&has_token](const http::SseEvent& event) {
        has_token |= event.event == "token" || event.event == "end";
        return !has_token;
      });
  return !response.ok() && !has_token && response.error().code == ErrorCode::DeadlineExceeded;
}

}  // namespace llorch::pool
