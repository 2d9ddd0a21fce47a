// WorkThreads: where handlers send what would hold up an io thread (files, locks, whatever takes
// time in proportion to a request), and wait for it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/channel.h"
#include "base/job_border.h"
#include "base/result.h"
#include "base/work_limit.h"
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
  // Unavailable when too much is waiting. What `work` throws becomes an error.
  //
  // When `limit` is over it returns at once, with Cancelled or DeadlineExceeded; work that has not
  // begun then never does, and work under way is expected to look at the limit itself.
  template <class T>
  Task<Result<T>> run(std::function<Result<T>()> work, base::WorkLimit limit = {}) {
    const auto feed = std::make_shared<EventFeed<Result<T>>>(1);
    const bool queued =
        push({[feed, work = std::move(work), limit] {
                const Status begins = limit.check();
                Result<T> result = begins.ok() ? base::run_job<T>("while answering", work)
                                               : Result<T>(begins.error());
                // Refused when nobody waits any more: then it goes with the feed.
                [[maybe_unused]] const bool taken = feed->try_push(std::move(result));
              },
              limit.stop});
    if (!queued) co_return Error{ErrorCode::Unavailable, "too much work is waiting; try again"};
    const std::stop_callback on_stop(limit.stop, [feed] { feed->close(); });
    while (true) {
      auto next = co_await feed->next(time_left(limit));
      if (next.item) co_return std::move(*next.item);
      const Status goes_on = limit.check();
      if (!goes_on.ok()) co_return goes_on.error();
    }
  }

 private:
  struct Job {
    std::function<void()> run;  // throws nothing
    std::stop_token stop;
  };

  static std::chrono::milliseconds time_left(const base::WorkLimit& limit) {
    constexpr std::chrono::milliseconds kLongest = std::chrono::hours(1);
    const auto now = std::chrono::steady_clock::now();
    if (limit.deadline > now + kLongest) return kLongest;
    return std::chrono::ceil<std::chrono::milliseconds>(
        std::max(limit.deadline - now, std::chrono::steady_clock::duration::zero()));
  }

  bool push(Job job);  // false: the queue is full
  void serve();        // the life of one thread

  base::Channel<Job> waiting_;
  std::vector<std::jthread> threads_;
};

}  // namespace llorch::http
