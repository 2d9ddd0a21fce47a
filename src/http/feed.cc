#include "http/feed.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/defer.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/check.h"
#include "base/mutex.h"

namespace llorch::http {

namespace asio = boost::asio;

struct Waker::State {
  base::Mutex mutex;
  bool notified LLORCH_GUARDED_BY(mutex) = false;  // a wake nobody has seen yet
  // Of the waiting coroutine, in its frame.
  asio::steady_timer* timer LLORCH_GUARDED_BY(mutex) = nullptr;
  bool cancel_posted LLORCH_GUARDED_BY(mutex) = false;  // at most one post per wait
};

namespace {

// Takes the timer out of the state when the wait ends, also when the server destroys the frame:
// after that nobody touches the executor any more.
template <class State>
class WaitScope {
 public:
  explicit WaitScope(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~WaitScope() {
    const base::MutexLock lock(state_->mutex);
    state_->timer = nullptr;
    state_->cancel_posted = false;
    state_->notified = false;
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace

Waker::Waker() : state_(std::make_shared<State>()) {}

void Waker::notify() {
  const base::MutexLock lock(state_->mutex);
  state_->notified = true;
  if (state_->timer == nullptr || std::exchange(state_->cancel_posted, true)) return;
  // Posting under the lock keeps the executor alive: the waiter's frame cannot go before we are
  // through. Deferred: where this thread serves the waiter as well, it goes on there itself, after
  // what it does now, and wakes no other.
  asio::defer(state_->timer->get_executor(), [state = state_] {
    const base::MutexLock relock(state->mutex);
    if (state->timer != nullptr) state->timer->cancel();
  });
}

Task<void> Waker::wait_until(std::chrono::steady_clock::time_point deadline) {
  const std::shared_ptr<State> state = state_;
  asio::steady_timer timer(co_await asio::this_coro::executor, deadline);
  {
    const base::MutexLock lock(state->mutex);
    if (std::exchange(state->notified, false)) co_return;
    CHECK(state->timer == nullptr, "two coroutines wait on one feed");
    state->timer = &timer;
  }
  const WaitScope<State> scope(state);
  co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

}  // namespace llorch::http
