#include "base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/utf8.h"

namespace llorch::base {
namespace {

constexpr std::chrono::milliseconds kPause{5};
constexpr std::size_t kPidBytesMax = 64;

// Locks of the open file, not of the process: two threads exclude each other too, and closing
// another descriptor of the same file lets go of nothing.
struct flock whole_file(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string holder_of(const std::filesystem::path& file) {
  const Result<std::string> text = read_text_file(file, kPidBytesMax);
  if (!text.ok() || text->empty()) return "another process";
  return fmt::format("process {}", base::quoted(*text));
}

bool is_file_at(int fd, const std::filesystem::path& file) {
  struct stat held {};
  struct stat there {};
  return ::fstat(fd, &held) == 0 && ::stat(file.c_str(), &there) == 0 &&
         held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

}  // namespace

Result<std::unique_ptr<FileLock>> FileLock::acquire(const std::filesystem::path& file,
                                                    std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
      const int reason = errno;
      return Error{
          reason == EACCES || reason == EROFS ? ErrorCode::Forbidden : ErrorCode::Unavailable,
          fmt::format("{}: the lock file cannot be opened: {}", file.string(),
                      std::error_code(reason, std::generic_category()).message())};
    }
    std::unique_ptr<FileLock> lock(new FileLock(file, fd));
    struct flock want = whole_file(F_WRLCK);
    if (::fcntl(fd, F_OFD_SETLK, &want) == 0) {
      // Its last holder may have removed the file since it was opened: then this lock is nobody's.
      if (!is_file_at(fd, file)) continue;
      lock->write_pid();
      return lock;
    }
    const int reason = errno;
    if (reason != EAGAIN && reason != EACCES && reason != EINTR) {
      return Error{ErrorCode::Unavailable,
                   fmt::format("{}: cannot be locked: {}", file.string(),
                               std::error_code(reason, std::generic_category()).message())};
    }
    if (std::chrono::steady_clock::now() >= until) {
      return Error{ErrorCode::Conflict, fmt::format("{} is held by {}; wait for it or end it",
                                                    file.string(), holder_of(file))};
    }
    std::this_thread::sleep_for(kPause);
  }
}

// A failure to write costs a name in a message, not the lock.
void FileLock::write_pid() const {
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd_, 0) == 0) [[maybe_unused]]
    const ssize_t written = ::pwrite(fd_, pid.data(), pid.size(), 0);
}

void FileLock::remove_file() {
  ::unlink(file_.c_str());
}

FileLock::~FileLock() {
  ::close(fd_);
}

bool FileLock::is_held(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  struct flock probe = whole_file(F_WRLCK);
  const bool held = ::fcntl(fd, F_OFD_GETLK, &probe) == 0 && probe.l_type != F_UNLCK;
  ::close(fd);
  return held;
}

}  // namespace llorch::base
