// Orchestrator: the thread that owns the fleet. Events go in, decide() moves the facts on, and the
// effects are handed to pools, relays, answers and the store. Nothing here waits for any of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/owner_loop.h"
#include "base/result.h"
#include "fleet/decide.h"
#include "http/feed.h"
#include "http/task.h"
#include "http/work_threads.h"
#include "job_store/store.h"
#include "orchestrator/ports.h"

namespace llorch::orchestrator {

// One job as it comes in. submit() fills in what is left open below.
struct Submission {
  fleet::JobId job;  // a new one: make_job_id()
  // Open: model (found by model_name), submitted_ms, body_bytes, body_hash.
  fleet::SubmittedRecord facts;
  std::shared_ptr<const std::string> body;
  std::vector<std::uint64_t> prefix;  // hashes of its prompt's blocks; may be empty
};

fleet::JobId make_job_id();
fleet::UnixMs wall_now_ms();

// A model that somebody named. NotFound says which names are near.
struct FoundModel {
  fleet::ModelHash hash;
  std::string name;  // as the catalogs call it
};
Result<FoundModel> find_model_by_name(const fleet::Fleet& fleet, std::string_view name);

// What the core orders of pools. Called on the owner's thread, must not wait.
class PoolOrders {
 public:
  virtual ~PoolOrders() = default;

  virtual void start_worker(const fleet::HostId& host, const fleet::LoadPlan& plan) = 0;
  virtual void stop_worker(const fleet::HostId& host, const fleet::WorkerId& worker) = 0;
  virtual void step_host(const fleet::HostId& host, fleet::HostAction action) = 0;
  // Nothing while it cannot be reached.
  virtual std::optional<PoolAddress> address_of(const fleet::HostId& host) const = 0;
};

// All of them outlive the orchestrator's thread.
struct OrchestratorParts {
  job_store::Store* store = nullptr;
  Attempts* attempts = nullptr;
  Answers* answers = nullptr;
  PoolOrders* pools = nullptr;
  http::WorkThreads* threads = nullptr;  // where bodies are read again
  const base::Clock* clock = &base::real_clock();
};

class Orchestrator {
 public:
  Orchestrator(fleet::FleetLimits limits, fleet::Boot boot);
  ~Orchestrator();  // stops
  Orchestrator(const Orchestrator&) = delete;
  Orchestrator& operator=(const Orchestrator&) = delete;

  // Everything below may be called by any thread.

  void post(fleet::Event event);
  // The store's listener: records become events, groups of answers go to Answers.
  void note_written(job_store::Written written);

  // Called once, on the owner's thread; must not wait.
  using OnReply = std::function<void(const fleet::Reply&)>;
  // The reply comes when the job is durable (at once for one that lives with its connection), or
  // when it was refused: status then says why, NotFound with the nearest names of models.
  void submit(Submission submission, OnReply on_reply);
  // The reply comes when it has ended; NotFound: no such live job.
  void ask_stop(const fleet::JobId& job, fleet::StopCause cause, OnReply on_reply);

  // Runs the question on the owner's thread. False: too much waits; it is not run.
  using Question = std::function<void(const fleet::Fleet& fleet, fleet::TimePoint now)>;
  [[nodiscard]] bool ask(Question question);

  // The same three for coroutines.
  http::Task<fleet::Reply> submit_and_wait(Submission submission);
  http::Task<fleet::Reply> stop_and_wait(fleet::JobId job, fleet::StopCause cause);
  // Unavailable where too much waits.
  template <class T>
  http::Task<Result<T>> ask_for(
      std::function<Result<T>(const fleet::Fleet& fleet, fleet::TimePoint now)> question) {
    const auto feed = std::make_shared<http::EventFeed<Result<T>>>(1);
    const bool asked = ask(
        [feed, question = std::move(question)](const fleet::Fleet& fleet, fleet::TimePoint now) {
          [[maybe_unused]] const bool taken = feed->try_push(question(fleet, now));
        });
    if (!asked) co_return too_busy();
    auto next = co_await feed->next(kAnswerPatience);
    if (!next.item) co_return too_busy();
    co_return std::move(*next.item);
  }

 private:
  static constexpr std::chrono::milliseconds kAnswerPatience{30'000};
  static Error too_busy();
};

}  // namespace llorch::orchestrator
