// What the caller of a transfer hears, and how often. Private to fetch/.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "fetch/fetch_answer.h"
#include "fetch/transfer.h"

namespace llorch::fetch {

class Reporter {
 public:
  Reporter(const OnTransferProgress& on_progress, std::chrono::milliseconds wait_shown)
      : on_progress_(on_progress), wait_shown_(wait_shown) {}

  void note(std::string text) { note_ = std::move(text); }
  void gained() { last_gain_ = Clock::now(); }

  // `progress` without the times and the note. `silent_url`: who is waited for; empty: nobody.
  void tell(TransferProgress progress, const std::string& silent_url, bool at_once) {
    const Clock::time_point now = Clock::now();
    if (!on_progress_ || (!at_once && note_.empty() && now < next_)) return;
    next_ = now + kProgressEvery;
    const auto silence = std::chrono::duration_cast<milliseconds>(now - last_gain_);
    if (silence >= wait_shown_ && !silent_url.empty()) {
      progress.waiting = silence;
      progress.waiting_for = host_of(silent_url);
    }
    progress.note = std::exchange(note_, {});
    on_progress_(progress);
  }

 private:
  using Clock = std::chrono::steady_clock;
  using milliseconds = std::chrono::milliseconds;
  static constexpr milliseconds kProgressEvery{100};

  const OnTransferProgress& on_progress_;
  const milliseconds wait_shown_;
  Clock::time_point next_{};
  Clock::time_point last_gain_ = Clock::now();
  std::string note_;
};

}  // namespace llorch::fetch
