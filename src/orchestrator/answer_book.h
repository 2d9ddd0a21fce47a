// AnswerBook: the answers of all live jobs, and the way to those of ended ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "fleet/ids.h"
#include "fleet/records.h"
#include "http/message.h"
#include "http/stream.h"
#include "http/task.h"
#include "http/work_threads.h"
#include "job_store/store.h"
#include "orchestrator/answer_log.h"
#include "orchestrator/follower.h"
#include "orchestrator/ports.h"

namespace llorch::orchestrator {

struct BookLimits {
  AnswerLimits log;
  std::size_t bytes = std::size_t{128} << 20;  // of all answers, in memory
  std::chrono::milliseconds keep_alive{10'000};
};

// How the client of an OpenAI request wants its answer.
struct ClientWish {
  bool ids = false;    // X-Llorch-Ids: 1
  bool usage = false;  // stream_options.include_usage, or the answer as a whole
};

// Any thread. Store and threads outlive it.
class AnswerBook final : public Answers {
 public:
  AnswerBook(job_store::Store& store, http::WorkThreads& threads, PostEvent post,
             BookLimits limits = {});

  // --- Answers ---
  void open(const fleet::JobId& job, const fleet::SubmittedRecord& facts,
            const fleet::Position& stored) override;
  void drop(const fleet::JobId& job) override;
  void tell(const fleet::JobId& job, const fleet::JobNotice& notice) override;
  void note_written(const std::vector<job_store::AnswerWritten>& answers) override;

  // Before the job is submitted.
  void prepare(const fleet::JobId& job, ClientWish wish);

  // The answer of a live job; null: none.
  std::shared_ptr<AnswerLog> find(const fleet::JobId& job) const;
  // The same, with what is stored of it; or that of an ended job. NotFound.
  http::Task<Result<std::shared_ptr<AnswerLog>>> read(fleet::JobId job);

  // Answers with the job's events (server-sent, contract 5) until their end; `last_event_id` is the
  // client's header, empty for none. An error before anything was answered: NotFound,
  // InvalidArgument for an id that is no position, Conflict for a job that lives with a connection.
  http::Task<Status> follow(fleet::JobId job, std::string last_event_id,
                            http::Responder& responder);

  FollowerParts follower_parts() const { return {&store_, &threads_, post_}; }
  std::chrono::milliseconds keep_alive() const { return limits_.keep_alive; }

  // Several times a second: groups that are due go to the store, ended answers are let go, memory
  // is kept in bounds.
  void tick(AnswerLog::Clock::time_point now);

  struct Size {
    std::size_t answers = 0;
    std::size_t bytes = 0;
  };
  Size size() const;

 private:
  std::shared_ptr<AnswerLog> make_log(const fleet::JobId& job, const fleet::SubmittedRecord& facts,
                                      ClientWish wish) const;
  http::Task<Result<std::shared_ptr<AnswerLog>>> read_ended(fleet::JobId job);
  std::vector<std::shared_ptr<AnswerLog>> all() const;

  job_store::Store& store_;
  http::WorkThreads& threads_;
  const PostEvent post_;
  const BookLimits limits_;
  mutable base::Mutex mutex_;
  std::unordered_map<fleet::JobId, std::shared_ptr<AnswerLog>, fleet::JobIdHash> logs_
      LLORCH_GUARDED_BY(mutex_);
  std::unordered_map<fleet::JobId, ClientWish, fleet::JobIdHash> wishes_ LLORCH_GUARDED_BY(mutex_);
};

}  // namespace llorch::orchestrator
