// Every patience of the pool manager in one place; tests shorten them.
#pragma once

#include <chrono>

namespace llorch::pool {

struct PoolTiming {
  std::chrono::milliseconds health_interval{1'000};
  std::chrono::milliseconds health_timeout{5'000};  // one answer
  int health_failures = 5;                          // in a row: the worker hangs
  // Work and no token for so long: it hangs. A long prompt makes no token while it is read; the
  // slowest machine we know reads its whole context in less.
  std::chrono::milliseconds token_patience{60'000};
  // An idle worker is asked for one token after so long without work. 0: never.
  std::chrono::milliseconds idle_probe{300'000};
  std::chrono::milliseconds ready_base{60'000};        // the deadline of an empty file
  double ready_bytes_per_second = 50e6;                // and what a slow disk brings on top
  std::chrono::milliseconds drain_patience{30'000};    // for what a worker that stops still runs
  std::chrono::milliseconds drain_grace{10'000};       // beyond it: for its last words
  std::chrono::milliseconds term_patience{30'000};     // SIGTERM → SIGKILL
  std::chrono::milliseconds kill_patience{5'000};      // the keeper's obedience
  std::chrono::milliseconds reclaim_patience{10'000};  // for a GPU's memory to be back
  std::chrono::milliseconds orphan_patience{60'000};   // no manager: the keeper ends its worker
  std::chrono::milliseconds stopped_shown{600'000};    // how long a stopped worker is listed
};

}  // namespace llorch::pool
