#include "worker_http/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace llorch::worker_http {

namespace {

constexpr int kShortThreads = 2;
constexpr int kLongThreads = 2;
constexpr int kAnswerThreads = 1;
// A body of this size is read in a few milliseconds.
constexpr std::size_t kShortBodyBytes = std::size_t{32} << 10;
constexpr std::size_t kShortWaitingMax = 1024;
constexpr std::size_t kLongWaitingMax = 64;

std::chrono::steady_clock::time_point deadline_of(const Service& service,
                                                  const http::Request& request) {
  std::chrono::nanoseconds limit = service.settings.inference_timeout;
  if (request.deadline) {
    limit = std::min<std::chrono::nanoseconds>(
        limit, *request.deadline - std::chrono::system_clock::now());
  }
  return std::chrono::steady_clock::now() + limit;
}

}  // namespace

Service::Service(InferenceBackend& with, const RouteSettings& set)
    : backend(with),
      metrics(std::make_shared<Metrics>()),
      settings(set),
      short_work(kShortThreads, kShortWaitingMax),
      long_work(kLongThreads, kLongWaitingMax),
      answer_work(kAnswerThreads) {}

RequestText text_of(const http::Request& request) {
  RequestText text;
  if (const auto type = request.headers.find("Content-Type"))
    text.content_type = std::string(*type);
  text.body = request.body;
  text.correlation_id = request.correlation_id;
  text.wants_ids = request.headers.find("X-Llorch-Ids") == "1";
  return text;
}

RequestWork::RequestWork(ServicePtr service, const http::Request& request,
                         http::Responder& responder)
    : service_(std::move(service)),
      arrived_(std::chrono::steady_clock::now()),
      deadline_(deadline_of(*service_, request)),
      is_short_(request.body.size() <= kShortBodyBytes) {
  responder.on_disconnect([stop = stop_]() mutable { stop.request_stop(); });
}

RequestWork::~RequestWork() {
  stop_.request_stop();
}

Status check_model_loaded(const InferenceBackend& backend) {
  if (backend.model() != nullptr) return ok_status();
  const LoadStatus status = backend.status();
  if (status.state == LoadStatus::State::Unhealthy) {
    return Error{ErrorCode::Unavailable, "this worker has no model: " + status.reason};
  }
  return Error{
      ErrorCode::Unavailable,
      fmt::format("the model is still loading ({:.0f} %); GET /health says when it is ready",
                  status.load_progress * 100)};
}

std::optional<Refusal> check_model(const InferenceBackend& backend, const std::string& wanted) {
  if (const Status loaded = check_model_loaded(backend); !loaded.ok())
    return Refusal{loaded.error(), "", ""};
  const std::string& id = backend.model()->id;
  const std::vector<std::string>& aliases = backend.model()->aliases;
  if (wanted.empty() || wanted == id) return std::nullopt;
  if (std::find(aliases.begin(), aliases.end(), wanted) != aliases.end()) return std::nullopt;
  return Refusal{
      {ErrorCode::NotFound, fmt::format("the model {} is not here; this worker serves {}",
                                        base::quoted(wanted), base::quoted(id))},
      "model",
      "model_not_found"};
}

Generations::Generations(const Service& service, std::size_t num_choices)
    : shared_(std::make_shared<Shared>(
          service.backend, service.metrics,
          std::make_shared<JobFeed>(num_choices, service.settings.max_waiting_pieces,
                                    service.metrics))) {}

Generations::~Generations() {
  shared_->abandon();
}

void Generations::Shared::abandon() const {
  feed->close();
  for (const Ticket ticket : tickets) backend.abandon(ticket);
}

Status Generations::submit(std::vector<TextRequest> requests) {
  std::vector<Submission> submissions;
  submissions.reserve(requests.size());
  for (TextRequest& request : requests) {
    submissions.push_back({std::move(request), shared_->feed->make_listener(submissions.size())});
  }
  Result<std::vector<Ticket>> tickets = shared_->backend.submit(std::move(submissions));
  if (!tickets.ok()) return tickets.error();
  shared_->tickets = tickets.take();
  return ok_status();
}

void Generations::abandon_on_disconnect(http::Responder& responder) {
  responder.on_disconnect([shared = shared_] { shared->abandon(); });
}

}  // namespace llorch::worker_http
