// Starting a daemon of ours beside a program, waiting until it can be used, and saying why it
// cannot be, in its own words.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::api {

inline constexpr std::chrono::milliseconds kDaemonStartPatience{20'000};

struct DaemonStart {
  std::string what;               // "the pool manager", in messages
  std::filesystem::path program;  // as a path
  std::vector<std::string> arguments;
  std::filesystem::path log_file;  // that the arguments name
  std::chrono::milliseconds patience = kDaemonStartPatience;
};

// Starts the program in a session of its own and waits until `is_ready` says so, asked again and
// again: it may also be another one's that was started meanwhile. Unavailable, with what it said
// since, on its output or in its log: it ended before, or is not ready in time. Callers hold a
// lock, so that two of them start one.
Status start_daemon(const DaemonStart& start, const std::function<bool()>& is_ready);

// What the end of a log says, in plain words: the last line that is whole. `is_disk_full`: of the
// disk the log lies on.
std::string last_words(std::string_view log_tail, bool is_disk_full);

}  // namespace llorch::api
