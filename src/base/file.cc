#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/fd.h"

namespace llorch::base {
namespace {

// What stands behind the name of a file that is being written, and how much of its end is fixed.
constexpr std::string_view kTemporarySuffix = ".XXXXXX.tmp";
constexpr int kTemporaryKept = 4;
constexpr mode_t kFolderMode = 0700;
constexpr mode_t kOwnerMode = 0600;
constexpr mode_t kEverybodyMode = 0644;

Error system_error(std::string_view what, const std::filesystem::path& path) {
  const int number = errno;
  ErrorCode code = ErrorCode::Unavailable;
  if (number == ENOENT || number == ENOTDIR) code = ErrorCode::NotFound;
  if (number == EACCES || number == EPERM) code = ErrorCode::Forbidden;
  return {code, fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(number))};
}

Error not_regular(const std::filesystem::path& path, mode_t mode) {
  return {ErrorCode::InvalidArgument,
          fmt::format("{} is {}, not a regular file", path.string(), describe_file_kind(mode))};
}

// Opens a regular file for reading and reports its size.
struct OpenFile {
  int fd;
  std::size_t size;
};
Result<OpenFile> open_regular_file(const std::filesystem::path& path) {
  // Looked at before and behind the opening: to open some devices is to use them, and what lies at
  // the path may change in between. Without O_NONBLOCK a pipe would wait for its writer for ever.
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return system_error("open", path);
  if (!S_ISREG(info.st_mode)) return not_regular(path, info.st_mode);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error("open", path);
  if (::fstat(fd, &info) != 0) {
    Error error = system_error("stat", path);
    ::close(fd);
    return error;
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return not_regular(path, info.st_mode);
  }
  return OpenFile{fd, static_cast<std::size_t>(info.st_size)};
}

Status write_all(int fd, std::span<const std::byte> content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return system_error("write", path);
    }
    content = content.subspan(static_cast<std::size_t>(written));
  }
  return ok_status();
}

// Where the file ends now, which may be long before the place that was asked for.
Error cut_error(int fd, const std::filesystem::path& path, std::size_t opened_size) {
  struct stat status {};
  const std::int64_t end = ::fstat(fd, &status) == 0 ? status.st_size : 0;
  return Error{ErrorCode::Unavailable,
               fmt::format("{} ends at byte {} of {}: it was cut after it was opened; start again "
                           "with the whole file",
                           path.string(), end, opened_size)};
}

}  // namespace

std::string_view describe_file_kind(unsigned mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "a regular file";
    case S_IFDIR:
      return "a folder";
    case S_IFIFO:
      return "a pipe";
    case S_IFSOCK:
      return "a socket";
    case S_IFCHR:
    case S_IFBLK:
      return "a device";
    default:
      return "something else";
  }
}

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  Result<OpenFile> opened = open_regular_file(path);
  if (!opened.ok()) return opened.error();
  Fd fd(opened->fd);
  const std::byte* data = nullptr;
  if (opened->size > 0) {
    void* mapped = ::mmap(nullptr, opened->size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (mapped == MAP_FAILED) return system_error("map", path);
    data = static_cast<const std::byte*>(mapped);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, fd.release(), data, opened->size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Status MappedFile::read(std::span<const std::byte> part, std::span<std::byte> into) const {
  CHECK(holds(part) && into.size() >= part.size());
  const std::int64_t begin = part.data() - data_;
  std::size_t done = 0;
  while (done < part.size()) {
    const std::int64_t at = begin + static_cast<std::int64_t>(done);
    const ssize_t count = ::pread(fd_.get(), into.data() + done, part.size() - done, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("read", path_);
    if (count == 0) return cut_error(fd_.get(), path_, size_);
    done += static_cast<std::size_t>(count);
  }
  return ok_status();
}

void MappedFile::forget(std::span<const std::byte> part) const {
  if (!holds(part)) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = static_cast<std::size_t>(part.data() - data_);  // data_ begins a page
  const std::size_t begin = (first + page - 1) / page * page;
  // The last page of a file has nothing behind its end.
  const std::size_t end =
      first + part.size() == size_ ? size_ : (first + part.size()) / page * page;
  if (begin >= end) return;
  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

void forget_pages(std::span<const std::byte> part) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t into_page = reinterpret_cast<std::uintptr_t>(part.data()) % page;
  const std::size_t begin = (page - into_page) % page;
  if (part.size() < begin + page) return;
  const std::size_t bytes = (part.size() - begin) / page * page;
  ::madvise(const_cast<std::byte*>(part.data()) + begin, bytes, MADV_DONTNEED);
}

void touch_pages(std::span<const std::byte> memory) {
  if (memory.empty()) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const volatile std::byte* bytes = memory.data();
  for (std::size_t at = 0; at < memory.size(); at += page) {
    [[maybe_unused]] const std::byte seen = bytes[at];
  }
  [[maybe_unused]] const std::byte last = bytes[memory.size() - 1];
}

Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t max_bytes) {
  Result<OpenFile> opened = open_regular_file(path);
  if (!opened.ok()) return opened.error();
  const Fd fd(opened->fd);
  if (opened->size > max_bytes) {
    return Error{ErrorCode::TooLarge, fmt::format("{} has {} bytes, more than the {} allowed here",
                                                  path.string(), opened->size, max_bytes)};
  }
  std::string text(opened->size, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + done, text.size() - done);
    if (got < 0) {
      if (errno == EINTR) continue;
      return system_error("read", path);
    }
    if (got == 0) break;  // the file shrank while we read it
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

void remove_abandoned_writes(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const auto is_left_over = [&name](std::string_view other) {
    if (other.size() != name.size() + kTemporarySuffix.size() || !other.starts_with(name + ".") ||
        !other.ends_with(".tmp"))
      return false;
    const std::string_view random = other.substr(name.size() + 1, 6);
    return std::all_of(random.begin(), random.end(),
                       [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
  };
  std::error_code error;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (is_left_over(at->path().filename().string())) std::filesystem::remove(at->path(), ignored);
  }
}

Status make_private_folder(const std::filesystem::path& folder) {
  std::filesystem::path made;
  for (const std::filesystem::path& part : folder) {
    made /= part;
    struct stat info {};
    if (::mkdir(made.c_str(), kFolderMode) == 0 || errno == EEXIST) continue;
    // A folder that is there may refuse in other words, on a disk that is read-only.
    const int number = errno;
    if (::stat(made.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) continue;
    errno = number;
    return system_error("make the folder", made);
  }
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return ok_status();
  return Error{ErrorCode::Unavailable,
               fmt::format("cannot make the folder {}: a file is there", folder.string())};
}

void make_private(const std::filesystem::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || (info.st_mode & 077U) == 0) return;
  if (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) ::chmod(path.c_str(), info.st_mode & 0700U);
}

Result<std::unique_ptr<AtomicFile>> AtomicFile::create(const std::filesystem::path& path,
                                                       FileAccess access) {
  std::string temporary = path.string() + std::string(kTemporarySuffix);
  const int fd = ::mkostemps(temporary.data(), kTemporaryKept, O_CLOEXEC);
  if (fd < 0) return system_error("create a temporary file for", path);
  return std::unique_ptr<AtomicFile>(new AtomicFile(path, std::move(temporary), fd, access));
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::span<const std::byte> content) {
  CHECK(fd_ >= 0, "a write after commit()");
  return write_all(fd_, content, path_);
}

Status AtomicFile::commit() {
  CHECK(fd_ >= 0, "commit() twice");
  const mode_t mode = access_ == FileAccess::Owner ? kOwnerMode : kEverybodyMode;
  if (::fchmod(fd_, mode) != 0) return system_error("set the mode of", path_);
  if (::fsync(fd_) != 0) return system_error("sync", path_);
  if (::close(std::exchange(fd_, -1)) != 0) return system_error("close", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return system_error("rename into", path_);
  temporary_.clear();

  // The rename itself is durable only once the folder is.
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  const Fd folder_fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder_fd.get() < 0 || ::fsync(folder_fd.get()) != 0)
    return system_error("sync the folder of", path_);
  return ok_status();
}

Status write_file_atomically(const std::filesystem::path& path,
                             std::span<const std::byte> content) {
  Result<std::unique_ptr<AtomicFile>> file = AtomicFile::create(path);
  if (!file.ok()) return file.error();
  if (Status written = (*file)->write(content); !written.ok()) return written;
  return (*file)->commit();
}

Status write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  return write_file_atomically(path, std::as_bytes(std::span(content)));
}

}  // namespace llorch::base
