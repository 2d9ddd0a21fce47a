// StateBoard: what the pool's state looks like from outside: its revision, who waits for the next
// one, and where each worker is. Nobody who looks here waits for the manager. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "contract/pool_info.h"
#include "http/feed.h"

namespace llorch::pool {

class StateBoard {
 public:
  // `now_ms`: the birth of this manager, since 1970. Revisions begin there, so that they grow over
  // restarts too.
  explicit StateBoard(std::uint64_t now_ms);

  std::uint64_t pool_start() const { return pool_start_; }
  std::uint64_t revision() const;

  // The newest, whenever they may have changed. What moves all the time (memory, slots in use,
  // ages, speeds) makes no revision.
  void take_workers(const std::vector<contract::PoolWorker>& workers);
  // The same of everything else, as a text that is another one when something has changed.
  void take_rest(std::string digest);

  // As it was last taken.
  std::optional<contract::PoolWorker> find(std::string_view id) const;

  // Is woken at each new revision for as long as it lives.
  class Watch {
   public:
    explicit Watch(StateBoard& board);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    http::Waker& waker() { return waker_; }

   private:
    StateBoard& board_;
    http::Waker waker_;
    std::uint64_t number_ = 0;
  };

 private:
  void note_change() LLORCH_REQUIRES(mutex_);

  const std::uint64_t pool_start_;
  mutable base::Mutex mutex_;
  std::uint64_t revision_ LLORCH_GUARDED_BY(mutex_);
  std::string worker_digest_ LLORCH_GUARDED_BY(mutex_);
  std::string rest_digest_ LLORCH_GUARDED_BY(mutex_);
  std::map<std::string, contract::PoolWorker, std::less<>> workers_ LLORCH_GUARDED_BY(mutex_);
  std::uint64_t next_watch_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, http::Waker> watches_ LLORCH_GUARDED_BY(mutex_);
};

}  // namespace llorch::pool
