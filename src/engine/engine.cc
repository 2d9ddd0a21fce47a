#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>
#include <unordered_map>

#include "base/check.h"
#include "base/job_border.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "engine/core.h"
#include "engine/request_check.h"

namespace llorch::engine {
namespace {

constexpr std::int64_t kWindowSeconds = 5;
// The first tokens after a pause are no basis for a large number.
constexpr double kLeastSeconds = 0.25;

// Tokens per second over the last seconds, in one slot for each second.
class TokenRate {
 public:
  void add(std::int64_t tokens, Clock::time_point now) {
    if (tokens == 0) return;
    Slot& slot = slots_[static_cast<std::size_t>(second_of(now)) % slots_.size()];
    if (slot.second != second_of(now)) slot = {.second = second_of(now), .first = now};
    slot.tokens += tokens;
  }

  double per_second(Clock::time_point now) const {
    std::int64_t tokens = 0;
    Clock::time_point first = now;
    for (const Slot& slot : slots_) {
      if (slot.tokens == 0 || slot.second + kWindowSeconds <= second_of(now)) continue;
      tokens += slot.tokens;
      first = std::min(first, slot.first);
    }
    return static_cast<double>(tokens) /
           std::max(kLeastSeconds, std::chrono::duration<double>(now - first).count());
  }

 private:
  struct Slot {
    std::int64_t second = -1;
    std::int64_t tokens = 0;
    Clock::time_point first = {};
  };
  static std::int64_t second_of(Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
  }

  std::array<Slot, 8> slots_;
};

}  // namespace

// The thread, and all that other threads may touch: one mutex, held for a few lines, never during a
// step or a call to a sink.
class Engine::Impl final : public StepHost {
 public:
  Impl(std::unique_ptr<model::ModelRunner> runner, const EngineOptions& options)
      : clock_(*options.clock),
        core_(std::move(runner), options),
        bounds_{.vocab_size = core_.runner().vocab_size(),
                .context_length = core_.runner().context_length(),
                .max_sequence_tokens = core_.max_sequence_tokens()},
        max_live_(static_cast<std::size_t>(core_.options().max_running) +
                  static_cast<std::size_t>(core_.options().max_waiting)) {
    core_.tell(*this);
    const base::MutexLock lock(join_mutex_);
    thread_ = base::start_thread("engine", [this] { run(); });
    thread_id_ = thread_.get_id();
  }

  template <class Request, class Sink>
  Result<std::unique_ptr<Sequence>> make_sequence(Request request, std::shared_ptr<Sink> sink) {
    CHECK(sink != nullptr);
    const Status status = check_request(request, bounds_);
    if (!status.ok()) return status.error();
    const GenerationId id = next_id_.fetch_add(1, std::memory_order_relaxed);
    return std::make_unique<Sequence>(id, std::move(request), std::move(sink), clock_.now());
  }

  // All or none.
  Status submit(std::vector<std::unique_ptr<Sequence>> sequences) {
    {
      const base::MutexLock lock(mutex_);
      if (stopping_) return Error{ErrorCode::Unavailable, "the engine is stopping"};
      if (sequences.size() > max_live_) {
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("{} generations at once are more than the {} that may run and "
                                 "wait here: ask for fewer",
                                 sequences.size(), max_live_)};
      }
      if (live_.size() + sequences.size() > max_live_) {
        return Error{ErrorCode::QueueFull,
                     fmt::format("{} requests run and wait already, of the {} that may: try again "
                                 "later",
                                 live_.size(), max_live_)};
      }
      for (std::unique_ptr<Sequence>& sequence : sequences) {
        live_.emplace(sequence->id(), Live{});
        inbox_.push_back(std::move(sequence));
      }
    }
    wake_.notify_one();
    return ok_status();
  }

  template <class Request, class Sink>
  Result<GenerationId> submit_one(Request request, std::shared_ptr<Sink> sink) {
    Result<std::unique_ptr<Sequence>> sequence = make_sequence(std::move(request), std::move(sink));
    if (!sequence.ok()) return sequence.error();
    const GenerationId id = (*sequence)->id();
    std::vector<std::unique_ptr<Sequence>> one;
    one.push_back(sequence.take());
    const Status submitted = submit(std::move(one));
    if (!submitted.ok()) return submitted.error();
    return id;
  }

  void cancel(GenerationId id) {
    {
      const base::MutexLock lock(mutex_);
      const auto found = live_.find(id);
      if (found == live_.end() || found->second.cancelled) return;
      found->second.cancelled = true;
      cancelled_.push_back(id);
      if (found->second.rows > 0) consider_abort(found->second.rows);
    }
    wake_.notify_one();
  }

  void stop() {
    CHECK(std::this_thread::get_id() != thread_id_, "a sink may not stop the engine");
    {
      const base::MutexLock lock(mutex_);
      stopping_ = true;
      abort_.store(true, std::memory_order_relaxed);
    }
    wake_.notify_one();
    const base::MutexLock lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  EngineStats stats() const {
    const base::MutexLock lock(mutex_);
    EngineStats stats = stats_;
    stats.waiting = num_waiting();
    stats.step_began_at = step_began_at_;
    stats.decode_tokens_per_second = rate_.per_second(clock_.now());
    return stats;
  }

  const RequestBounds& bounds() const { return bounds_; }

  // On the engine's thread, from within core_.
  const std::atomic<bool>* step_begins(std::span<const StepShare> shares) override {
    const base::MutexLock lock(mutex_);
    if (num_steps_++ == 0) {
      step_began_at_ = clock_.now();
      abort_.store(stopping_, std::memory_order_relaxed);
    }
    std::int32_t unwanted_rows = 0;
    for (const StepShare& share : shares) {
      Live& live = live_.at(share.id);
      live.rows += share.rows;
      if (live.cancelled) unwanted_rows = std::max(unwanted_rows, share.rows);
    }
    if (unwanted_rows > 0) consider_abort(unwanted_rows);
    return &abort_;
  }

  void step_ended(std::span<const StepShare> shares, bool aborted,
                  std::vector<GenerationId>& cancelled) override {
    const base::MutexLock lock(mutex_);
    for (const StepShare& share : shares) {
      const auto found = live_.find(share.id);
      if (found != live_.end()) found->second.rows -= share.rows;
    }
    if (!shares.empty()) --num_steps_;
    // What is still in flight runs from now on.
    step_began_at_ = num_steps_ > 0 ? clock_.now() : Clock::time_point();
    last_step_aborted_ = aborted;
    cancelled.insert(cancelled.end(), cancelled_.begin(), cancelled_.end());
    // An id that waits in the inbox is unknown to the core so far.
    cancelled_.clear();
    for (const std::unique_ptr<Sequence>& sequence : inbox_) {
      if (live_.at(sequence->id()).cancelled) cancelled_.push_back(sequence->id());
    }
  }

  void report(const EngineStats& stats, std::span<const GenerationId> ended) override {
    const base::MutexLock lock(mutex_);
    rate_.add(stats.output_tokens - stats_.output_tokens, stats.last_token_at);
    stats_ = stats;
    for (const GenerationId id : ended) live_.erase(id);
  }

 private:
  struct Live {
    std::int32_t rows = 0;  // in the steps that run now
    bool cancelled = false;
  };

  void run() {
    std::vector<std::unique_ptr<Sequence>> arrivals;
    std::vector<GenerationId> cancelled;
    for (bool stopping = false; !stopping;) {
      {
        const base::MutexLock lock(mutex_);
        while (!stopping_ && inbox_.empty() && cancelled_.empty() && core_.idle())
          wake_.wait(mutex_);
        stopping = stopping_;
        arrivals.swap(inbox_);
        cancelled.swap(cancelled_);
        stats_.waiting += static_cast<std::int32_t>(arrivals.size());
      }
      for (std::unique_ptr<Sequence>& sequence : arrivals) core_.add(std::move(sequence));
      for (const GenerationId id : cancelled) core_.cancel(id);
      arrivals.clear();
      cancelled.clear();
      if (stopping) break;
      // Memory may run out in a step: that ends what was in it, and nothing else.
      const Status stepped = base::run_guarded("while computing", [this] { core_.step(*this); });
      if (!stepped.ok()) core_.fail_step(*this, stepped.error());
    }
    core_.cancel_all();
    core_.tell(*this);
  }

  // A sequence with this many rows in flight has been cancelled. A chunk of a prompt is worth
  // giving the step up; one row is not while others wait for theirs. After an aborted step the next
  // one runs to its end for those who want it, so that they get on however many others are
  // cancelled.
  void consider_abort(std::int32_t rows) LLORCH_REQUIRES(mutex_) {
    const bool is_wanted = std::any_of(live_.begin(), live_.end(), [](const auto& entry) {
      return entry.second.rows > 0 && !entry.second.cancelled;
    });
    if (!is_wanted || (rows > 1 && !last_step_aborted_)) {
      abort_.store(true, std::memory_order_relaxed);
    }
  }

  std::int32_t num_waiting() const LLORCH_REQUIRES(mutex_) {
    return stats_.waiting + static_cast<std::int32_t>(inbox_.size());
  }

  const base::Clock& clock_;
  EngineCore core_;  // owned by the engine's thread
  const RequestBounds bounds_;
  const std::size_t max_live_;
  std::atomic<GenerationId> next_id_ = 1;
  std::atomic<bool> abort_ = false;

  mutable base::Mutex mutex_;
  base::CondVar wake_;
  bool stopping_ LLORCH_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Sequence>> inbox_ LLORCH_GUARDED_BY(mutex_);  // at most max_live_
  // Since the thread last looked; each live id once.
  std::vector<GenerationId> cancelled_ LLORCH_GUARDED_BY(mutex_);
  // Submitted and not ended.
  std::unordered_map<GenerationId, Live> live_ LLORCH_GUARDED_BY(mutex_);
  std::int32_t num_steps_ LLORCH_GUARDED_BY(mutex_) = 0;  // in flight
  bool last_step_aborted_ LLORCH_GUARDED_BY(mutex_) = false;
  Clock::time_point step_began_at_ LLORCH_GUARDED_BY(mutex_) = {};
  EngineStats stats_ LLORCH_GUARDED_BY(mutex_);
  TokenRate rate_ LLORCH_GUARDED_BY(mutex_);

  base::Mutex join_mutex_;  // never taken while mutex_ is held
  std::jthread thread_ LLORCH_GUARDED_BY(join_mutex_);
  std::thread::id thread_id_;  // constant after construction
};

std::unique_ptr<Engine> Engine::start(std::unique_ptr<model::ModelRunner> runner,
                                      const EngineOptions& options) {
  CHECK(runner != nullptr);
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(std::move(runner), options)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  stop();
}

Result<GenerationId> Engine::submit(GenerationRequest request,
                                    std::shared_ptr<GenerationSink> sink) {
  return impl_->submit_one(std::move(request), std::move(sink));
}

Result<GenerationId> Engine::submit(EmbeddingRequest request, std::shared_ptr<EmbeddingSink> sink) {
  return impl_->submit_one(std::move(request), std::move(sink));
}

Result<std::vector<GenerationId>> Engine::submit(std::vector<Submission> submissions) {
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<GenerationId> ids;
  for (Submission& submission : submissions) {
    Result<std::unique_ptr<Sequence>> sequence =
        impl_->make_sequence(std::move(submission.request), std::move(submission.sink));
    if (!sequence.ok()) return sequence.error();
    ids.push_back((*sequence)->id());
    sequences.push_back(sequence.take());
  }
  const Status submitted = impl_->submit(std::move(sequences));
  if (!submitted.ok()) return submitted.error();
  return ids;
}

void Engine::cancel(GenerationId id) {
  impl_->cancel(id);
}

void Engine::stop() {
  impl_->stop();
}

EngineStats Engine::stats() const {
  return impl_->stats();
}

std::int32_t Engine::context_length() const {
  return impl_->bounds().context_length;
}

std::int32_t Engine::max_sequence_tokens() const {
  return impl_->bounds().max_sequence_tokens;
}

}  // namespace llorch::engine
