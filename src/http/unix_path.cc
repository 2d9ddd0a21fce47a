#include "http/unix_path.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "http/url.h"

namespace llorch::http {
namespace {

constexpr int kBacklog = 4096;

Error cannot_listen(const std::string& path, std::string_view why) {
  return {ErrorCode::Unavailable, fmt::format("cannot listen on {}: {}", path, why)};
}

int open_socket() {
  return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

// Makes room for a socket at that path.
Status remove_stale(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? ok_status() : Status(cannot_listen(path, std::strerror(errno)));
  }
  if (!S_ISSOCK(info.st_mode))
    return cannot_listen(path, "something that is no socket is there; remove it or choose another");
  const int probe = open_socket();
  if (probe < 0) return cannot_listen(path, std::strerror(errno));
  const bool is_refused =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno == ECONNREFUSED;
  ::close(probe);
  if (!is_refused) {
    return Error{
        ErrorCode::Conflict,
        fmt::format("cannot listen on {}: another process listens there; stop it first", path)};
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return cannot_listen(path, std::strerror(errno));
  return ok_status();
}

}  // namespace

Result<int> UnixPath::bind(const std::string& path) {
  if (!path.starts_with('/') || path.size() > kUnixPathBytesMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a unix socket needs an absolute path of at most {} bytes, not '{}' "
                             "({} bytes); choose a shorter folder",
                             kUnixPathBytesMax, path, path.size())};
  }
  if (Status made = base::make_private_folder(std::filesystem::path(path).parent_path());
      !made.ok())
    return made.error();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (Status room = remove_stale(path, address); !room.ok()) return room.error();
  const int fd = open_socket();
  if (fd < 0) return cannot_listen(path, std::strerror(errno));
  // The mode of the descriptor is that of the file from its first moment on.
  struct stat info {};
  if (::fchmod(fd, 0600) != 0 ||
      ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::stat(path.c_str(), &info) != 0 ||
      ::listen(fd, kBacklog) != 0) {
    Error failure = cannot_listen(path, std::strerror(errno));
    ::close(fd);
    return failure;
  }
  path_ = path;
  device_ = info.st_dev;
  inode_ = info.st_ino;
  return fd;
}

void UnixPath::remove() {
  const std::string path = std::exchange(path_, {});
  struct stat info {};
  if (path.empty() || ::lstat(path.c_str(), &info) != 0) return;
  if (info.st_dev == device_ && info.st_ino == inode_) ::unlink(path.c_str());
}

}  // namespace llorch::http
