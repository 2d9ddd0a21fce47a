#include "worker_http/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace llorch::worker_http {

std::chrono::steady_clock::time_point deadline_of(const Service& service,
                                                  const http::Request& request) {
  std::chrono::nanoseconds limit = service.settings.inference_timeout;
  if (request.deadline) {
    limit = std::min<std::chrono::nanoseconds>(
        limit, *request.deadline - std::chrono::system_clock::now());
  }
  return std::chrono::steady_clock::now() + limit;
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
  if (wanted.empty() || wanted == id) return std::nullopt;
  return Refusal{
      {ErrorCode::NotFound, fmt::format("the model {} is not here; this worker serves {}",
                                        base::quoted(wanted), base::quoted(id))},
      "model",
      "model_not_found"};
}

Generations::Generations(ServicePtr service, std::size_t num_choices)
    : shared_(std::make_shared<Shared>()) {
  shared_->feed = std::make_shared<JobFeed>(num_choices, service->settings.max_waiting_pieces,
                                            service->metrics);
  shared_->service = std::move(service);
}

Generations::~Generations() {
  shared_->abandon();
}

void Generations::Shared::abandon() const {
  feed->close();
  for (const Ticket ticket : tickets) service->backend.abandon(ticket);
}

Status Generations::submit(TextRequest request) {
  const Result<Ticket> ticket = shared_->service->backend.submit(
      std::move(request), shared_->feed->make_listener(shared_->tickets.size()));
  if (ticket.ok()) {
    shared_->tickets.push_back(*ticket);
    return ok_status();
  }
  shared_->service->metrics->count(outcome_of_refusal(ticket.error()));
  shared_->abandon();
  return ticket.error();
}

void Generations::abandon_on_disconnect(http::Responder& responder) {
  responder.on_disconnect([shared = shared_] { shared->abandon(); });
}

}  // namespace llorch::worker_http
