// EventFeed: how a plain thread hands items to a coroutine of the server without ever waiting for
// it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "base/channel.h"
#include "http/task.h"

namespace llorch::http {

// Wakes one waiting coroutine from any thread. A wake that comes first is remembered. It may be
// called after the coroutine and its server are gone.
class Waker {
 public:
  Waker();
  void notify();
  // Returns at notify() or at `deadline`, sometimes earlier: look again at what you wait for. One
  // waiter at a time.
  Task<void> wait_until(std::chrono::steady_clock::time_point deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A bounded, closable queue. Any thread pushes; one coroutine takes. Shared between both through a
// shared_ptr.
template <class T>
class EventFeed {
 public:
  explicit EventFeed(std::size_t capacity) : items_(capacity) {}

  // Never blocks. False when full (the reader is too slow) or closed (nobody reads any more).
  [[nodiscard]] bool try_push(T item) {
    if (!items_.try_push(std::move(item))) return false;
    waker_.notify();
    return true;
  }

  // No more pushes; what is queued can still be taken. Idempotent; either side may call it.
  void close() {
    items_.close();
    waker_.notify();
  }

  bool is_closed() const { return items_.is_closed(); }

  // An item; or none, with `ended` saying whether the feed is closed and empty (true) or was silent
  // for the whole timeout (false). A timeout above a day counts as a day.
  struct Next {
    std::optional<T> item;
    bool ended = false;
  };
  Task<Next> next(std::chrono::milliseconds timeout) {
    constexpr std::chrono::milliseconds kLongest =
        std::chrono::hours(24);  // far from the clock's end
    const auto deadline = std::chrono::steady_clock::now() + std::min(timeout, kLongest);
    while (true) {
      std::optional<Next> ready = take();
      if (!ready && std::chrono::steady_clock::now() >= deadline) ready.emplace();
      if (ready) co_return std::move(*ready);
      co_await waker_.wait_until(deadline);
    }
  }

 private:
  std::optional<Next> take() {
    const bool is_last = is_closed();  // before the look: nothing comes after it
    std::optional<T> item = items_.try_pop();
    if (!item && !is_last) return std::nullopt;
    const bool ended = !item;
    return Next{std::move(item), ended};
  }

  base::Channel<T> items_;
  Waker waker_;
};

}  // namespace llorch::http
