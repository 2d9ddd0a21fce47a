#include "pool/log_tail.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/utf8.h"

namespace llorch::pool {
namespace {

constexpr std::int64_t kTailBytesMax = std::int64_t{4} << 20;
constexpr std::size_t kReadBytesMax = std::size_t{256} << 10;

Error file_error(const std::filesystem::path& file, int error) {
  return {ErrorCode::Internal,
          fmt::format("{} cannot be read: {}", file.string(), std::strerror(error))};
}

// Up to `bytes` from that place; fewer at the end of the file.
Result<std::string> read_at(const std::filesystem::path& file, int fd, std::int64_t offset,
                            std::size_t bytes) {
  std::string text(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(fd, text.data() + done, bytes - done, offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_error(file, errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

// Where the last `lines` lines of a file of `size` bytes begin. A line that is not ended counts.
Result<std::int64_t> find_last_lines(const std::filesystem::path& file, int fd, std::int64_t size,
                                     std::size_t lines) {
  const std::int64_t floor = std::max<std::int64_t>(0, size - kTailBytesMax);
  std::int64_t end = size;
  std::size_t found = 0;
  while (end > floor) {
    const std::int64_t begin = std::max(floor, end - static_cast<std::int64_t>(kReadBytesMax));
    const Result<std::string> block =
        read_at(file, fd, begin, static_cast<std::size_t>(end - begin));
    if (!block.ok()) return block.error();
    for (std::size_t i = block->size(); i > 0; --i) {
      const std::int64_t at = begin + static_cast<std::int64_t>(i) - 1;
      // The end of the last line begins no other.
      if ((*block)[i - 1] != '\n' || at == size - 1) continue;
      if (++found == lines) return at + 1;
    }
    end = begin;
  }
  return lines == 0 ? size : floor;
}

}  // namespace

Result<LogTail> LogTail::open(std::filesystem::path file, std::size_t lines) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno != ENOENT) return file_error(file, errno);
  LogTail tail(std::move(file), fd, 0);
  if (fd < 0) return tail;
  struct stat info {};
  if (::fstat(fd, &info) != 0) return file_error(tail.file_, errno);
  const Result<std::int64_t> begin = lines == 0
                                         ? Result<std::int64_t>(info.st_size)
                                         : find_last_lines(tail.file_, fd, info.st_size, lines);
  if (!begin.ok()) return begin.error();
  tail.offset_ = *begin;
  return tail;
}

LogTail::LogTail(std::filesystem::path file, int fd, std::int64_t offset)
    : file_(std::move(file)), fd_(fd), offset_(offset) {}

LogTail::~LogTail() {
  if (fd_ >= 0) ::close(fd_);
}

LogTail::LogTail(LogTail&& other) noexcept
    : file_(std::move(other.file_)), fd_(std::exchange(other.fd_, -1)), offset_(other.offset_) {}

LogTail& LogTail::operator=(LogTail&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(fd_, other.fd_);
  std::swap(offset_, other.offset_);
  return *this;
}

bool LogTail::is_current() const {
  struct stat named {};
  struct stat open {};
  if (::stat(file_.c_str(), &named) != 0 || ::fstat(fd_, &open) != 0) return true;
  return named.st_ino == open.st_ino && named.st_dev == open.st_dev;
}

Result<std::string> LogTail::read_more(bool take_rest) {
  if (fd_ < 0) fd_ = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) return std::string();  // still not there
  // Asked first: what is written between the two calls still belongs to the old file.
  const bool current = is_current();
  Result<std::string> text = read_at(file_, fd_, offset_, kReadBytesMax);
  if (!text.ok()) return text;
  const std::size_t end = text->rfind('\n');
  const bool is_full = text->size() == kReadBytesMax;
  if (end != std::string::npos) {
    text->resize(end + 1);
  } else if (!is_full && current && !take_rest) {
    text->clear();
  }
  offset_ += static_cast<std::int64_t>(text->size());
  if (text->empty() && !current) {
    const int fd = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return std::string();  // between the two: look again
    ::close(std::exchange(fd_, fd));
    offset_ = 0;
    return read_more(take_rest);
  }
  return base::to_valid_utf8(*text);
}

}  // namespace llorch::pool
