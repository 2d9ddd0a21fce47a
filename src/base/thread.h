// Threads with a name and a top frame. What a job throws belongs to a border around that job
// (job_border.h); what escapes a thread's whole body is logged and ends the process, because nobody
// would do that thread's work any more, and whoever waits for it would wait for ever.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace llorch::base {

// The top frame: names the calling thread (15 characters are seen from outside) and runs `body`.
void run_thread(const std::string& name, const std::function<void()>& body);

// `body` takes nothing or the stop token of the thread. The thread is joined where it is destroyed.
template <class Body>
std::jthread start_thread(std::string name, Body body) {
  return std::jthread(
      [name = std::move(name), body = std::move(body)](const std::stop_token& stop) mutable {
        run_thread(name, [&] {
          if constexpr (std::is_invocable_v<Body&, const std::stop_token&>) {
            body(stop);
          } else {
            body();
          }
        });
      });
}

}  // namespace llorch::base
