#include "pool/worker_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "base/log_file.h"
#include "base/positioned_file.h"
#include "base/terminal.h"

namespace llorch::pool {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTailBytes = std::int64_t{64} << 10;
constexpr std::size_t kShownLineBytesMax = 1024;

std::string read_tail(const fs::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const std::int64_t size = in.tellg();
  const std::int64_t bytes = std::min(size, kTailBytes);
  in.seekg(size - bytes);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  in.read(text.data(), bytes);
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return text;
}

void append_lines(std::string_view text, std::vector<std::string>& lines) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    const bool is_long = line.size() > kShownLineBytesMax;
    if (is_long) line = line.substr(0, kShownLineBytesMax);
    if (!line.empty()) lines.push_back(base::printable(line) + (is_long ? "…" : ""));
  }
}

}  // namespace

WorkerLog::WorkerLog(fs::path file, std::int64_t bytes_max)
    : file_(std::move(file)), bytes_max_(bytes_max) {
  open();
}

WorkerLog::~WorkerLog() {
  flush();
  if (fd_ >= 0) ::close(fd_);
}

void WorkerLog::open() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  struct stat info {};
  bytes_ = fd_ >= 0 && ::fstat(fd_, &info) == 0 ? info.st_size : 0;
}

void WorkerLog::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t take =
        std::min({end == std::string_view::npos ? bytes.size() : end + 1,
                  kLineBytesMax - std::min(line_.size(), kLineBytesMax - 1), bytes.size()});
    line_.append(bytes.substr(0, take));
    bytes.remove_prefix(take);
    if (line_.back() == '\n' || line_.size() >= kLineBytesMax) {
      write_whole(line_);
      line_.clear();
    }
  }
}

void WorkerLog::flush() {
  if (line_.empty()) return;
  line_ += '\n';
  write_whole(line_);
  line_.clear();
}

void WorkerLog::write_line(std::string_view line) {
  flush();
  write(line);
  flush();
}

void WorkerLog::write_whole(std::string_view bytes) {
  if (bytes_ > 0 && bytes_ + static_cast<std::int64_t>(bytes.size()) > bytes_max_) {
    base::rotate_log(file_);
    open();
  }
  while (fd_ >= 0 && !bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes_ += written;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::vector<std::string> read_last_lines(const fs::path& file, std::size_t count,
                                         std::chrono::system_clock::time_point since) {
  std::vector<std::string> lines;
  append_lines(read_tail(file), lines);
  struct ::stat status {};
  const bool is_there = ::stat(base::older_log(file, 1).c_str(), &status) == 0;
  const auto written = std::chrono::system_clock::from_time_t(status.st_mtim.tv_sec) +
                       std::chrono::duration_cast<std::chrono::system_clock::duration>(
                           std::chrono::nanoseconds(status.st_mtim.tv_nsec));
  const bool is_of_this_run = is_there && written >= since;
  if (lines.size() < count && is_of_this_run) {
    std::vector<std::string> all;
    append_lines(read_tail(base::older_log(file, 1)), all);
    all.insert(all.end(), lines.begin(), lines.end());
    lines = std::move(all);
  }
  if (lines.size() > count)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

std::vector<LeftLog> list_logs(const base::Home& home) {
  constexpr std::size_t kLogsMax = 10'000;
  std::vector<LeftLog> logs;
  std::error_code error;
  for (fs::directory_iterator entry(home.logs(), error), end;
       !error && entry != end && logs.size() < kLogsMax; entry.increment(error)) {
    const fs::path& file = entry->path();
    if (file.extension() != ".log") continue;
    const std::optional<fs::path> found = find_log_of(home, file.stem().string());
    const std::optional<base::FileStamp> stamp =
        found ? base::stamp_of(*found) : std::optional<base::FileStamp>();
    if (!stamp) continue;
    const std::chrono::nanoseconds since(stamp->modified_ns);
    logs.push_back({file.stem().string(), *found,
                    std::chrono::system_clock::time_point(
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(since))});
  }
  std::sort(logs.begin(), logs.end(),
            [](const LeftLog& a, const LeftLog& b) { return a.id < b.id; });
  return logs;
}

std::optional<fs::path> find_log_of(const base::Home& home, std::string_view id) {
  const bool is_id =
      id.starts_with("worker-") && id.size() <= 128 &&
      id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
  if (!is_id) return std::nullopt;
  std::error_code error;
  fs::path file = home.logs() / (std::string(id) + ".log");
  return fs::is_regular_file(file, error) ? std::optional<fs::path>(std::move(file)) : std::nullopt;
}

}  // namespace llorch::pool
