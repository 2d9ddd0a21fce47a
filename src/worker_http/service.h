// What every handler works with. Private to worker_http/.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/work_limit.h"
#include "http/message.h"
#include "http/stream.h"
#include "http/task.h"
#include "http/work_threads.h"
#include "worker_http/backend.h"
#include "worker_http/job_feed.h"
#include "worker_http/metrics.h"
#include "worker_http/routes.h"

namespace llorch::worker_http {

// Lives as long as the router's handlers; immutable apart from what it refers to. Work that it runs
// may use it, and never owns it.
struct Service {
  Service(InferenceBackend& with, const RouteSettings& set);

  InferenceBackend& backend;  // outlives every handler
  std::shared_ptr<Metrics> metrics;
  RouteSettings settings;
  // Where everything runs that takes time in proportion to a request. Short requests do not wait
  // for long ones, and answers, which cannot be refused any more, wait for neither. Last, so that
  // they end while the rest is still there.
  mutable http::WorkThreads short_work;
  mutable http::WorkThreads long_work;
  mutable http::WorkThreads answer_work;
};
using ServicePtr = std::shared_ptr<const Service>;

// What the work on a request needs of it, by value: work may outlive its handler.
struct RequestText {
  std::optional<std::string> content_type;
  std::string body;
  std::string correlation_id;
  bool wants_ids = false;  // X-Llorch-Ids: 1
};
RequestText text_of(const http::Request& request);

// The work of one request, off the io threads. It gives up when the client leaves, when the handler
// ends, when the request's deadline passes, and when one piece of work takes longer than the
// settings allow.
class RequestWork {
 public:
  RequestWork(ServicePtr service, const http::Request& request, http::Responder& responder);
  ~RequestWork();
  RequestWork(const RequestWork&) = delete;
  RequestWork& operator=(const RequestWork&) = delete;

  std::chrono::steady_clock::time_point arrived() const { return arrived_; }
  // When the whole answer must be done: the worker's own limit or the client's X-Deadline.
  std::chrono::steady_clock::time_point deadline() const { return deadline_; }

  // Refused with Unavailable when too much waits.
  template <class T>
  http::Task<Result<T>> read(std::function<Result<T>(const base::WorkLimit&)> work) {
    http::WorkThreads& threads = is_short_ ? service_->short_work : service_->long_work;
    return threads.run<T>(limited<T>(std::move(work)), {stop_.get_token(), deadline_});
  }
  // For an answer that is large to write down.
  template <class T>
  http::Task<Result<T>> write(std::function<Result<T>()> work) {
    return service_->answer_work.run<T>(std::move(work), {stop_.get_token(), deadline_});
  }

 private:
  template <class T>
  std::function<Result<T>()> limited(std::function<Result<T>(const base::WorkLimit&)> work) const {
    return [work = std::move(work), stop = stop_.get_token(), deadline = deadline_,
            time = service_->settings.work_time] {
      return work({stop, std::min(deadline, std::chrono::steady_clock::now() + time)});
    };
  }

  const ServicePtr service_;
  const std::chrono::steady_clock::time_point arrived_;
  const std::chrono::steady_clock::time_point deadline_;
  const bool is_short_;
  std::stop_source stop_;
};

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
  Generations(const Service& service, std::size_t num_choices);
  ~Generations();
  Generations(const Generations&) = delete;
  Generations& operator=(const Generations&) = delete;

  // One for each choice, in order; once. On any thread. After a failure nothing is left running.
  Status submit(std::vector<TextRequest> requests);
  // Call once they are submitted.
  void abandon_on_disconnect(http::Responder& responder);

  JobFeed& feed() { return *shared_->feed; }

 private:
  struct Shared {
    InferenceBackend& backend;
    std::shared_ptr<Metrics> metrics;
    std::shared_ptr<JobFeed> feed;
    std::vector<Ticket> tickets;

    Shared(InferenceBackend& with, std::shared_ptr<Metrics> counts, std::shared_ptr<JobFeed> into)
        : backend(with), metrics(std::move(counts)), feed(std::move(into)) {}
    void abandon() const;
  };
  std::shared_ptr<Shared> shared_;
};

}  // namespace llorch::worker_http
