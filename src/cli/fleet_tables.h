// What the commands of the fleet show, for people. Pure. Private to cli/.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/terminal.h"
#include "contract/fleet_api.h"

namespace llorch::cli {

// For whom a text is made.
struct View {
  std::chrono::system_clock::time_point now;
  std::size_t width = 80;  // columns of the terminal
  bool color = false;
  std::size_t fold_width = base::TextTable::kNoWidth;  // tables that are wider are folded
};
// What standard output is now.
View terminal_view(bool color);

// Columns of the terminal behind standard output; 80 where it says nothing.
std::size_t terminal_width();
std::size_t terminal_height();  // lines; 24

// "0.4 s", "42 s", "3 m", "2 h 5 m", "9 d".
std::string duration_text(double seconds);

// "next in its line", "3 before it": of a position, which counts from 1.
std::string queue_text(std::int64_t position);

// The whole house on one screen.
std::string status_text(const contract::FleetStatus& status, std::string_view url,
                        const View& view);
// HOST STATE CPU MEMORY DISK MODELS WORKERS, and why one is not connected.
std::string hosts_text(const std::vector<contract::HostView>& hosts, const View& view);
std::string workers_text(const std::vector<contract::FleetWorker>& workers, const View& view);
// JOB STATE MODEL WHERE TOKENS AGE.
std::string jobs_text(const std::vector<contract::TaskView>& tasks, const View& view);
// One job, with its tries.
std::string job_text(const contract::TaskView& task, const View& view);
// The score sheet of every candidate, also of those refused.
std::string why_text(const contract::WhyView& why, const View& view);
// ID NAME SCOPE MODELS TODAY EVER JOBS.
std::string keys_text(const std::vector<contract::KeyView>& keys, const View& view);

}  // namespace llorch::cli
