// IoThreads: where coroutines run that no connection of a server started: polls of other processes,
// streams that are read from them.
#pragma once

#include <functional>
#include <memory>

#include "http/task.h"

namespace llorch::http {

// A few threads with an event loop. Coroutines started here use Client and Waker as handlers of a
// server do.
class IoThreads {
 public:
  explicit IoThreads(int num_threads);
  ~IoThreads();  // stops
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  // Runs `body` on a strand of its own. Any thread; nothing happens once it was stopped. What it
  // throws is logged, and ends that coroutine alone.
  void spawn(std::function<Task<void>()> body);

  // Ends the threads and destroys the coroutines where they wait. Idempotent; any thread but these.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace llorch::http
