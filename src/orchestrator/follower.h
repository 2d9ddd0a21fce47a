// Follower: one reader of an answer, at its own pace, from wherever it left off.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/feed.h"
#include "http/task.h"
#include "http/work_threads.h"
#include "job_store/store.h"
#include "orchestrator/answer_log.h"
#include "orchestrator/ports.h"

namespace llorch::orchestrator {

// Lets through the events behind a position, where the stream begins at or before it. It may have
// been made anew since, with its choices in another order.
class EventFilter {
 public:
  // `at`: where the stream begins.
  EventFilter(fleet::Position seen, fleet::Position at);

  // Whole events in, those that are new out.
  std::string take(std::string events);
  // The stream is over: what waited for its position.
  std::string finish() { return std::move(held_); }
  bool is_open() const { return is_open_; }  // everything passes

 private:
  void take_event(std::string_view event, std::string& out);

  const fleet::Position seen_;
  fleet::Position at_;
  bool is_open_ = false;
  std::string held_;  // events without a position: they go with the next that has one
};

struct FollowerParts {
  job_store::Store* store = nullptr;
  http::WorkThreads* threads = nullptr;
  PostEvent post;
};

// Lives in the coroutine of one connection. Its number among the job's followers is an event.
class Follower {
 public:
  Follower(std::shared_ptr<AnswerLog> log, FollowerParts parts,
           const std::optional<fleet::Position>& last);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  struct Next {
    std::string bytes;
    bool has_ended = false;
    bool has_answer = false;  // not only a notice, or the end
  };
  // What is new, all at once, or is by `deadline`; nothing also when somebody notified the waker,
  // and sometimes for no reason. An error: a part of the answer is no longer kept.
  http::Task<Result<Next>> next(std::chrono::steady_clock::time_point deadline);

  http::Waker& waker() { return waker_; }
  AnswerLog& log() { return *log_; }

 private:
  http::Task<Result<std::string>> read_back(AnswerNews news);

  const std::shared_ptr<AnswerLog> log_;
  const FollowerParts parts_;
  const std::uint64_t number_;
  http::Waker waker_;
  AnswerCursor cursor_;
  std::optional<EventFilter> filter_;
  std::vector<fleet::AnswerGroup> backlog_;  // read from the store, newest question
  std::size_t backlog_next_ = 0;
};

}  // namespace llorch::orchestrator
