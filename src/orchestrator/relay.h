// Relays: attempts under way. Each is a coroutine that asks one worker through its pool, hands what
// comes to the job's answer, and says how it ended.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "base/mutex.h"
#include "http/client.h"
#include "http/feed.h"
#include "http/io_threads.h"
#include "http/work_threads.h"
#include "orchestrator/answer_book.h"
#include "orchestrator/ports.h"

namespace llorch::orchestrator {

struct RelayTimes {
  std::chrono::milliseconds silence{25'000};  // of a worker's stream, keep-alives counted
  std::chrono::milliseconds connect{3'000};
  std::chrono::milliseconds cut{250};  // for a cancelled worker to say that it has ended
  std::chrono::milliseconds tick{100};
  std::chrono::milliseconds progress{1'000};
};

// Counted since the start.
struct RelayCounters {
  std::uint64_t attempts = 0;
  std::uint64_t live = 0;
  std::uint64_t odd_events = 0;  // parsed as a whole
};

// Any thread. Everything it is given outlives it; the io threads are stopped before it goes.
class Relays final : public Attempts {
 public:
  Relays(http::IoThreads& io, http::WorkThreads& work, AnswerBook& book, PostEvent post,
         RelayTimes times = {});
  ~Relays() override;

  // Attempts from now on run there, where it takes them: beside the connections that they answer.
  // Null: here. Not while the other one's threads are being stopped.
  using Spawn = std::function<bool(std::function<http::Task<void>()> body)>;
  void run_beside(Spawn spawn);

  void open(AttemptRequest request) override;
  void cut(const fleet::AttemptId& attempt) override;

  RelayCounters counters() const;

 private:
  struct Live;  // one attempt
  using LivePtr = std::shared_ptr<Live>;

  http::Task<void> run(LivePtr live);
  http::Task<void> ask_worker(LivePtr live, std::shared_ptr<AnswerLog> log);
  http::Task<void> read_stream(LivePtr live, std::shared_ptr<AnswerLog> log,
                               http::ResponseStream stream, AnswerProgress told);
  http::Task<void> take_whole(LivePtr live, std::shared_ptr<AnswerLog> log,
                              http::ResponseStream stream);
  http::Task<void> take_refusal(LivePtr live, std::shared_ptr<AnswerLog> log,
                                http::ResponseStream stream);
  http::Task<void> cancel(LivePtr live);
  http::Task<void> tick_forever();

  http::ClientRequest request_to(const Live& live, std::string_view path) const;
  void note_started(Live& live, const AttemptFacts& facts);
  void end(Live& live, fleet::AttemptEnded ended);
  void report_progress();

  http::IoThreads& io_;
  http::WorkThreads& work_;
  AnswerBook& book_;
  const PostEvent post_;
  const RelayTimes times_;
  http::Client client_;
  std::atomic<std::uint64_t> attempts_{0};
  std::atomic<std::uint64_t> odd_events_{0};
  mutable base::Mutex mutex_;
  std::map<fleet::AttemptId, LivePtr> live_ LLORCH_GUARDED_BY(mutex_);
  base::Mutex spawn_mutex_;
  Spawn spawn_ LLORCH_GUARDED_BY(spawn_mutex_);
};

// How the end of an attempt is told, by what was seen of it. Pure.
struct WorkerSaid {
  Error error;
  bool is_retriable = false;  // its own word
  bool was_cut = false;       // we had asked for the end
};
fleet::AttemptEnded judge_error(const WorkerSaid& said);
fleet::AttemptEnded judge_refusal(int status, const Error& error, bool is_pools_own);
fleet::AttemptEnded judge_break(const Error& error, bool had_answered);

}  // namespace llorch::orchestrator
