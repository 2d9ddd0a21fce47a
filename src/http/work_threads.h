// WorkThreads: where handlers send what would block an io thread (files, locks), and wait for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "http/feed.h"
#include "http/task.h"

namespace llorch::http {

// A few threads and a bounded queue. Any thread may call run(). It outlives the coroutines that
// wait for it; destroying it finishes the work under way and drops the rest.
class WorkThreads {
 public:
  explicit WorkThreads(int num_threads, std::size_t max_waiting = 4096);
  ~WorkThreads();
  WorkThreads(const WorkThreads&) = delete;
  WorkThreads& operator=(const WorkThreads&) = delete;

  // Runs `work` on one of the threads and returns what it returned, on the awaiting coroutine's own
  // executor. The coroutine may be destroyed meanwhile: `work` holds everything it needs by value.
  // Unavailable when too much is waiting.
  template <class T>
  Task<Result<T>> run(std::function<Result<T>()> work) {
    const auto feed = std::make_shared<EventFeed<Result<T>>>(1);
    const bool queued = push([feed, work = std::move(work)] {
      [[maybe_unused]] const bool taken = feed->try_push(work());  // always: it holds one
    });
    if (!queued) co_return Error{ErrorCode::Unavailable, "too much work is waiting; try again"};
    while (true) {
      auto next = co_await feed->next(std::chrono::hours(1));
      if (next.item) co_return std::move(*next.item);
    }
  }

 private:
  bool push(std::function<void()> job);  // false: the queue is full
  void serve();

  const std::size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;  // guarded by mutex_
  bool stopping_ = false;                      // guarded by mutex_
  std::vector<std::jthread> threads_;
};

}  // namespace llorch::http
