#include "base/positioned_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/file.h"

namespace llorch::base {
namespace {

Error system_error(std::string_view what, const std::filesystem::path& path) {
  const int number = errno;
  ErrorCode code = ErrorCode::Unavailable;
  if (number == ENOENT || number == ENOTDIR) code = ErrorCode::NotFound;
  if (number == EACCES || number == EPERM || number == EROFS) code = ErrorCode::Forbidden;
  if (number == ENOSPC || number == EDQUOT || number == EFBIG) code = ErrorCode::OutOfMemory;
  return {code, fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(number))};
}

FileStamp make_stamp(const struct stat& info) {
  const auto ns = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {.size = info.st_size,
          .modified_ns = ns(info.st_mtim),
          .changed_ns = ns(info.st_ctim),
          .inode = static_cast<std::int64_t>(info.st_ino)};
}

}  // namespace

std::optional<FileStamp> stamp_of(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return make_stamp(info);
}

Result<std::shared_ptr<PositionedFile>> PositionedFile::open(const std::filesystem::path& path,
                                                             Mode mode) {
  // Without O_NONBLOCK, opening a pipe that lies where a file should be would wait for ever.
  const int flags = (mode == Mode::Read ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK;
  const int fd = ::open(path.c_str(), flags);
  if (fd < 0) return system_error("open", path);
  std::shared_ptr<PositionedFile> file(new PositionedFile(path, fd));
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("stat", path);
  if (!S_ISREG(info.st_mode))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is {}, not a regular file", path.string(),
                             describe_file_kind(info.st_mode))};
  return file;
}

PositionedFile::~PositionedFile() {
  ::close(fd_);
}

Result<FileStamp> PositionedFile::stamp() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return system_error("stat", path_);
  return make_stamp(info);
}

void PositionedFile::expect_sequential_reading() const {
  // Only advice: whether it is taken changes nothing but the speed.
  (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

Result<std::size_t> PositionedFile::read_at(std::int64_t offset, std::span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t count = ::pread(fd_, into.data() + done, into.size() - done,
                                  offset + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("read", path_);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

Status PositionedFile::write_at(std::int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("write", path_);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return ok_status();
}

Status PositionedFile::sync() {
  if (::fdatasync(fd_) != 0) return system_error("sync", path_);
  return ok_status();
}

}  // namespace llorch::base
