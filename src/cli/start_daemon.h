// Starting a daemon of ours beside a command and waiting until it can be used. Private to cli/.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::cli {

inline constexpr std::chrono::milliseconds kDaemonStartPatience{20'000};

struct DaemonStart {
  std::string what;     // "the pool manager", in messages
  std::string program;  // its name; it lies beside us
  std::vector<std::string> arguments;
  std::filesystem::path log_file;  // that the arguments name; its last line explains a failure
};

// Starts the program in a session of its own and waits until `is_ready` says so, asked again and
// again: it may also be another one's that was started meanwhile. Unavailable: it ended before, or
// is not ready in time. Callers hold a lock, so that two commands start one.
Status start_daemon(const DaemonStart& start, const std::function<bool()>& is_ready);

// Why a program ended, from the last lines of its log: the last one that is whole, in plain words.
// `is_disk_full`: of the disk the log lies on.
std::string last_words(std::string_view log_tail, bool is_disk_full);

}  // namespace llorch::cli
