#include "cli/start_daemon.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string_view>
#include <thread>

#include "base/file.h"
#include "base/json.h"
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

std::string read_tail(const std::filesystem::path& log_file) {
  constexpr std::size_t kLines = 2;  // the last one may be cut off
  Result<pool::LogTail> tail = pool::LogTail::open(log_file, kLines);
  Result<std::string> lines = tail.ok() ? tail->read_more(true) : tail.error();
  return lines.ok() ? lines.take() : std::string();
}

bool is_disk_full(const std::filesystem::path& log_file) {
  constexpr std::uintmax_t kOneBlock = 4096;
  std::error_code error;
  const auto space = std::filesystem::space(log_file.parent_path(), error);
  return !error && space.available < kOneBlock;
}

// What a line says: of one in JSON its message and its reason, of any other all of it. Nothing:
// its end is missing.
std::optional<std::string> words_of(std::string_view line) {
  if (!line.starts_with('{')) return std::string(line);
  const Result<json::Value> parsed = json::parse(line);
  const json::Object* object = parsed.ok() ? parsed->if_object() : nullptr;
  const json::Value* message = object != nullptr ? object->if_contains("message") : nullptr;
  if (message == nullptr || !message->is_string()) return std::nullopt;
  std::string words(json::view(message->as_string()));
  if (const json::Value* why = object->if_contains("why"); why != nullptr && why->is_string())
    words += fmt::format(": {}", json::view(why->as_string()));
  return words;
}

}  // namespace

std::string last_words(std::string_view log_tail, bool is_disk_full) {
  bool is_cut = false;
  while (!log_tail.empty()) {
    log_tail = log_tail.substr(0, log_tail.find_last_not_of('\n') + 1);
    const std::size_t begin = log_tail.rfind('\n') + 1;  // 0 where there is no line before
    const std::string_view line = log_tail.substr(begin);
    if (line.empty()) break;
    if (const std::optional<std::string> words = words_of(line)) {
      return base::printable(*words) +
             (is_cut ? " (its log ends in the middle of the next line: the disk may be full)" : "");
    }
    is_cut = true;
    log_tail = log_tail.substr(0, begin);
  }
  if (is_cut) return "its log ends in the middle of a line: the disk may be full";
  if (is_disk_full) return "it could not say why, the disk of its log is full: make room there";
  return "it said nothing";
}

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
                           last_words(read_tail(start.log_file), is_disk_full(start.log_file)),
                           start.log_file.string())};
}

}  // namespace llorch::cli
