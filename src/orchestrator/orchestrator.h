// Orchestrator: the thread that owns the fleet. Events go in, decide() moves the facts on, and the
// effects are handed to pools, relays, answers and the store. Nothing here waits for any of them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
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

#include "base/owner_loop.h"
#include "base/result.h"
#include "fleet/decide.h"
#include "http/feed.h"
#include "http/io_threads.h"
#include "http/task.h"
#include "http/work_threads.h"
#include "job_store/store.h"
#include "orchestrator/ports.h"

namespace llorch::orchestrator {

// One job as it comes in. submit() fills in what is left open below.
struct Submission {
  fleet::JobId job;  // a new one: make_job_id()
  // Open: model (found by model_name), submitted_ms, body_bytes; body_hash unless it is that of
  // something else than the body (all that the client sent, say).
  fleet::SubmittedRecord facts;
  std::shared_ptr<const std::string> body;
  std::vector<std::uint64_t> prefix;  // hashes of its prompt's blocks; may be empty
};

fleet::JobId make_job_id();
// For a request that names none: 53 bits, which any reader of JSON keeps.
std::uint64_t make_seed();
// SHA-256 as four words.
void hash_body(std::string_view body, std::uint64_t (&words)[4]);
fleet::UnixMs wall_now_ms();

// What the core orders of pools. Called on the owner's thread, must not wait.
class PoolOrders {
 public:
  virtual ~PoolOrders() = default;

  virtual void start_worker(const fleet::HostId& host, const fleet::LoadPlan& plan) = 0;
  virtual void stop_worker(const fleet::HostId& host, const fleet::WorkerId& worker) = 0;
  virtual void step_host(const fleet::HostId& host, fleet::HostAction action) = 0;
  // Nothing while it cannot be reached.
  virtual std::optional<PoolAddress> address_of(const fleet::HostId& host) const = 0;
  // Asks the pools that answer what they have now. on_done is called once, on the owner's thread,
  // when what they said has been decided; a second later at the latest.
  virtual void look(std::function<void()> on_done) = 0;
};

// All of them outlive the orchestrator's thread.
struct OrchestratorParts {
  job_store::Store* store = nullptr;
  Attempts* attempts = nullptr;
  Answers* answers = nullptr;
  PoolOrders* pools = nullptr;
  http::IoThreads* io = nullptr;         // bodies that are not in memory are asked for there
  http::WorkThreads* threads = nullptr;  // and read here
};

// What is known from the store before the first event.
struct Recovered {
  struct Host {
    fleet::HostId id;
    fleet::HostKind kind = fleet::HostKind::Ssh;
  };
  std::vector<Host> hosts;  // that are to be up, the local one too
  std::vector<std::pair<fleet::KeyId, fleet::KeyFacts>> keys;
  std::vector<std::pair<fleet::KeyId, fleet::KeyUsage>> usage;
  std::vector<fleet::JobRecords> jobs;   // that had not ended
  std::vector<fleet::JobRecords> ended;  // the newest that completed, the oldest of them first
  std::vector<std::pair<fleet::HostId, std::string>> host_models;  // fleet/host_memory.h
};

// How far a load has come, for those who wait for it.
struct LoadProgress {
  fleet::HostId host;
  fleet::ModelHash model;
  std::string stage;     // "fetching", "loading"
  double progress = -1;  // 0..1; below 0: not known
  double eta_ms = 0;
};

class Orchestrator : private fleet::FleetEffects {
 public:
  Orchestrator(fleet::FleetLimits limits, fleet::Boot boot);
  ~Orchestrator() override;  // stops
  Orchestrator(const Orchestrator&) = delete;
  Orchestrator& operator=(const Orchestrator&) = delete;

  // Starts the thread. Once, before anything below.
  void start(const OrchestratorParts& parts);
  // Takes up what was open. Once; until then the fleet is empty and nothing is accepted.
  void recover(Recovered recovered);
  // No more events; what waits is still done. Idempotent.
  void stop();

  // Everything below may be called by any thread.

  bool is_recovered() const { return is_recovered_; }
  // Whether the hosts had their time to answer: until then nothing is accepted.
  bool is_ready() const { return is_ready_; }

  void post(fleet::Event event);
  void run_on_owner(std::function<void()> work);
  // The store's listener: records become events, groups of answers go to Answers.
  void note_written(job_store::Written written);
  // An entry of the bucket of settings, lazily.
  void keep_setting(const std::string& key, const std::string& value);
  // Tells everybody who waits for that model.
  void note_load(LoadProgress progress);

  // Called once, on the owner's thread or, by submit, on the caller's; must not wait.
  using OnReply = std::function<void(const fleet::Reply&)>;
  // The reply comes when the job is durable (at once for one that lives with its connection), or
  // when it was refused: status then says why, NotFound with the nearest names of models.
  void submit(Submission submission, OnReply on_reply);
  // The reply comes when it has ended; NotFound: no such live job.
  void ask_stop(const fleet::JobId& job, fleet::StopCause cause, OnReply on_reply);

  // Runs the question on the owner's thread. False: too much waits; it is not run.
  using Question = std::function<void(const fleet::Fleet& fleet, fleet::TimePoint now)>;
  [[nodiscard]] bool ask(Question question);

  // The same for coroutines.
  http::Task<fleet::Reply> submit_and_wait(Submission submission);
  http::Task<fleet::Reply> stop_and_wait(fleet::JobId job, fleet::StopCause cause);
  // Returns when the pools that answer have been asked what they have, after this was called.
  http::Task<void> look_and_wait();
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
  struct Pending {
    OnReply on_reply;
    bool is_submission = false;
  };

  static constexpr std::chrono::milliseconds kAnswerPatience{30'000};
  static Error too_busy();

  // fleet::FleetEffects, on the owner's thread.
  void append(fleet::JobWrite write) override;
  void open_attempt(const fleet::AttemptOrder& order) override;
  void cut_attempt(const fleet::AttemptId& attempt) override;
  void start_worker(const fleet::HostId& host, const fleet::LoadPlan& plan) override;
  void stop_worker(const fleet::HostId& host, const fleet::WorkerId& worker) override;
  void step_host(const fleet::HostId& host, fleet::HostAction action) override;
  void tell(const fleet::JobId& job, const fleet::JobNotice& notice) override;
  void answer(fleet::RequestId request, const fleet::Reply& reply) override;
  void keep(fleet::Bucket bucket, const std::string& key, const std::string& value) override;

  // On the owner's thread.
  void take_up(const Recovered& recovered);
  void decide(const fleet::Event& event);
  void take_submission(Submission submission, OnReply on_reply, bool has_looked);
  bool look_first(std::function<void()> then);
  void begin_look();
  fleet::RequestId expect_reply(OnReply on_reply, bool is_submission);
  void open_with_body(AttemptRequest request);
  http::Task<void> read_body(AttemptRequest request);
  void take_body(AttemptRequest request, Result<std::string> body);
  void refuse_attempt(const fleet::AttemptId& attempt, const Error& error);
  void flush_backlog();
  base::OwnerLoop::Rest turn();

  // Constant after start().
  OrchestratorParts parts_;

  std::atomic<bool> is_recovered_ = false;
  std::atomic<bool> is_ready_ = false;
  std::atomic<std::size_t> submissions_waiting_ = 0;

  // Of the owner's thread.
  fleet::Fleet fleet_;
  std::unordered_map<fleet::JobId, std::shared_ptr<const std::string>, fleet::JobIdHash> bodies_;
  std::unordered_map<fleet::RequestId, Pending> pending_;
  fleet::RequestId next_request_ = 1;
  std::deque<fleet::JobWrite> backlog_;  // records that the store had no room for; in order
  // Attempts whose bodies are being read; true: cut meanwhile.
  std::unordered_map<fleet::JobId, std::pair<fleet::AttemptId, bool>, fleet::JobIdHash> reading_;
  fleet::TimePoint next_tick_{};
  // Looks at the pools before somebody hears that a model is unknown: one at a time, with a pause,
  // for all who came before it began.
  std::vector<std::function<void()>> look_waiters_;
  bool is_looking_ = false;
  fleet::TimePoint next_look_{};

  std::unique_ptr<base::OwnerLoop> loop_;  // last: its thread uses all of the above
};

}  // namespace llorch::orchestrator
