// What every handler works with. Private to worker_http/.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/message.h"
#include "http/stream.h"
#include "http/task.h"
#include "worker_http/backend.h"
#include "worker_http/job_feed.h"
#include "worker_http/metrics.h"
#include "worker_http/routes.h"

namespace llorch::worker_http {

// Lives as long as the router's handlers; immutable apart from what it refers to.
struct Service {
  InferenceBackend& backend;  // outlives every handler
  std::shared_ptr<Metrics> metrics;
  RouteSettings settings;
};
using ServicePtr = std::shared_ptr<const Service>;

// When a request that arrives now must be done: the worker's own limit or the client's X-Deadline.
std::chrono::steady_clock::time_point deadline_of(const Service& service,
                                                  const http::Request& request);

// Unavailable with the reason until the model is loaded.
Status check_model_loaded(const InferenceBackend& backend);

// A request that OpenAI's endpoints refuse: which field, and a code where there is a known one.
struct Refusal {
  Error error;
  std::string param;
  std::string code;
};
// Whether the model is loaded and the one that was asked for (empty: any).
std::optional<Refusal> check_model(const InferenceBackend& backend, const std::string& wanted);

// The generations of one HTTP request, from submit to the end of its handler. Whatever has not
// ended when it goes, or when the client goes, is abandoned.
class Generations {
 public:
  Generations(ServicePtr service, std::size_t num_choices);
  ~Generations();
  Generations(const Generations&) = delete;
  Generations& operator=(const Generations&) = delete;

  // One for each choice, in order. After a failure nothing is left running.
  Status submit(TextRequest request);
  // Call once all are submitted.
  void abandon_on_disconnect(http::Responder& responder);

  JobFeed& feed() { return *shared_->feed; }

 private:
  struct Shared {
    ServicePtr service;
    std::shared_ptr<JobFeed> feed;
    std::vector<Ticket> tickets;
    void abandon() const;
  };
  std::shared_ptr<Shared> shared_;
};

}  // namespace llorch::worker_http
