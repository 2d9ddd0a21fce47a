#include "cli/start_daemon.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "base/file.h"
#include "base/own_program.h"
#include "base/process.h"
#include "base/terminal.h"
#include "pool/log_tail.h"

namespace llorch::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{20};

// Everything but what another service manager told us.
std::vector<std::string> environment_for_daemon() {
  std::vector<std::string> all;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("NOTIFY_SOCKET=")) all.emplace_back(text);
  }
  return all;
}

std::string last_words(const std::filesystem::path& log_file) {
  Result<pool::LogTail> tail = pool::LogTail::open(log_file, 1);
  const Result<std::string> line = tail.ok() ? tail->read_more(true) : tail.error();
  if (!line.ok() || line->empty()) return "it said nothing";
  return base::printable(std::string_view(*line).substr(0, line->find_last_not_of('\n') + 1));
}

}  // namespace

Status start_daemon(const DaemonStart& start, const std::function<bool()>& is_ready) {
  if (Status made = base::make_private_folder(start.log_file.parent_path()); !made.ok())
    return made;
  auto held = base::HeldProcess::spawn(base::own_folder() / start.program, start.arguments,
                                       environment_for_daemon());
  if (!held.ok()) return held.error();
  const Result<base::ProcessHandle> released = (*held)->release();
  if (!released.ok()) {
    return Error{released.error().code,
                 fmt::format("{}; it belongs beside this program", released.error().message)};
  }
  const auto until = Clock::now() + kDaemonStartPatience;
  while (Clock::now() < until) {
    if (is_ready()) return ok_status();
    if (released->has_ended()) {
      if (is_ready()) return ok_status();  // it lost against one that somebody else started
      break;
    }
    std::this_thread::sleep_for(kTick);
  }
  return Error{ErrorCode::Unavailable,
               fmt::format("{} did not start: {}; its log is {}", start.what,
                           last_words(start.log_file), start.log_file.string())};
}

}  // namespace llorch::cli
