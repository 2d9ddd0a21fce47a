#include "api/start_daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "base/file.h"
#include "base/json.h"
#include "base/process.h"
#include "base/terminal.h"
#include "base/utf8.h"

namespace llorch::api {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{20};
constexpr off_t kTailBytes = 64 << 10;
constexpr std::size_t kShownBytesMax = 1'000;

// Everything but what another service manager told us.
std::vector<std::string> environment_for_daemon() {
  std::vector<std::string> all;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("NOTIFY_SOCKET=")) all.emplace_back(text);
  }
  return all;
}

// How far a log was written: what comes behind it is another life's.
struct LogEnd {
  ino_t file = 0;
  off_t size = 0;
};

LogEnd find_end(const std::filesystem::path& log_file) {
  struct stat info {};
  if (::stat(log_file.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_size};
}

std::string read_end(int fd, off_t begin) {
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0) return {};
  begin = std::max({begin, off_t{0}, info.st_size - kTailBytes});
  std::string text(static_cast<std::size_t>(std::max(off_t{0}, info.st_size - begin)), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), begin);
  text.resize(static_cast<std::size_t>(std::max(ssize_t{0}, got)));
  return base::to_valid_utf8(text);
}

// What was written since; of a log that was moved aside, what its successor has.
std::string read_since(const std::filesystem::path& log_file, const LogEnd& before) {
  const base::Fd file(::open(log_file.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return {};
  const bool is_same = info.st_ino == before.file && info.st_size >= before.size;
  return read_end(file.get(), is_same ? before.size : 0);
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

// Lines that a program wrote before it had a log, as one.
std::string join_lines(std::string_view output) {
  std::string joined;
  while (!output.empty()) {
    const std::size_t end = std::min(output.find('\n'), output.size());
    const std::string_view line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    if (joined.size() > kShownBytesMax) return joined + "; …";
    if (!line.empty()) joined += (joined.empty() ? "" : "; ") + base::printable(line);
  }
  return joined;
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
  const LogEnd before = find_end(start.log_file);
  // In memory, so that a full disk does not silence it.
  const base::Fd output(::memfd_create("daemon-output", MFD_CLOEXEC));
  auto held = base::HeldProcess::spawn(start.program, start.arguments, environment_for_daemon(),
                                       output.get());
  if (!held.ok()) return held.error();
  const Result<base::ProcessHandle> released = (*held)->release();
  if (!released.ok()) {
    return Error{released.error().code,
                 fmt::format("{} did not start: {}; it belongs there, beside our other programs",
                             start.what, released.error().message)};
  }
  const auto until = Clock::now() + start.patience;
  std::string end = fmt::format(" is not ready after {} s; the last that it said: ",
                                std::chrono::ceil<std::chrono::seconds>(start.patience).count());
  std::string signal;
  while (Clock::now() < until) {
    if (is_ready()) return ok_status();
    const int number = released->ending_signal();
    if (released->has_ended()) {
      if (is_ready()) return ok_status();  // it lost against one that somebody else started
      end = " did not start: ";
      if (number != 0) signal = fmt::format("; it {}", base::ExitStatus{0, number}.describe());
      break;
    }
    std::this_thread::sleep_for(kTick);
  }
  const std::string logged = read_since(start.log_file, before);
  const std::string said = join_lines(read_end(output.get(), 0));
  const std::string words =
      logged.empty() && !said.empty() ? said : last_words(logged, is_disk_full(start.log_file));
  return Error{ErrorCode::Unavailable, fmt::format("{}{}{}{}; its log is {}", start.what, end,
                                                   words, signal, start.log_file.string())};
}

}  // namespace llorch::api
