// Tells whoever started the worker that it is ready.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "contract/worker_info.h"

namespace llorch::worker {

struct CallbackTiming {
  std::chrono::milliseconds connect{3'000};
  std::chrono::milliseconds total{10'000};     // of one attempt
  std::chrono::milliseconds give_up{60'000};   // of all attempts
  std::chrono::milliseconds first_pause{250};  // doubles after each failure
  std::chrono::milliseconds longest_pause{5'000};
};

// A URL whose authority is localhost:9999 stands for nobody: tests use it.
bool is_test_callback(std::string_view url);

// Tries until an answer of 2xx. `mark`: what whoever started this worker knows it by; empty: it has
// none. Unavailable with the last failure after `give_up`, Cancelled when asked to stop. Blocks;
// not on an io thread.
Status send_ready_callback(const std::string& url, const contract::ReadyCallback& callback,
                           const std::string& mark, const CallbackTiming& timing,
                           const std::stop_token& stop,
                           const base::Clock& clock = base::real_clock());

}  // namespace llorch::worker
