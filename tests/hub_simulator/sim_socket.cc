#include "hub_simulator/sim_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace llorch::test {
namespace {

constexpr std::size_t kHeadBytesMax = std::size_t{64} << 10;
constexpr int kBacklog = 64;

}  // namespace

std::string SimConnection::read_head() {
  std::array<char, 4096> piece{};
  for (;;) {
    const std::size_t end = buffer_.find("\r\n\r\n");
    if (end != std::string::npos) {
      std::string head = buffer_.substr(0, end + 4);
      buffer_.erase(0, end + 4);
      return head;
    }
    if (buffer_.size() > kHeadBytesMax) return {};
    const ssize_t got = ::recv(fd_, piece.data(), piece.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};
    buffer_.append(piece.data(), static_cast<std::size_t>(got));
  }
}

bool SimConnection::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

void SimConnection::wait_for_end() {
  for (;;) {
    pollfd ready{fd_, POLLIN | POLLRDHUP, 0};
    if (::poll(&ready, 1, -1) < 0 && errno == EINTR) continue;
    std::array<char, 4096> piece{};
    if (::recv(fd_, piece.data(), piece.size(), 0) <= 0) return;
  }
}

void SimConnection::reset_at_end() {
  const linger at_once{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

SimListener::SimListener() {
  listen_fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  CHECK(listen_fd_ >= 0 && ::bind(listen_fd_, generic, sizeof address) == 0 &&
            ::listen(listen_fd_, kBacklog) == 0,
        "no free port for a test");
  socklen_t size = sizeof address;
  CHECK(::getsockname(listen_fd_, generic, &size) == 0, "getsockname");
  port_ = ntohs(address.sin_port);
}

void SimListener::start(std::function<void(SimConnection&)> serve) {
  serve_ = std::move(serve);
  acceptor_ = std::thread([this] { accept_all(); });
}

SimListener::~SimListener() {
  std::vector<std::thread> workers;
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    for (const int fd : open_fds_) ::shutdown(fd, SHUT_RDWR);
    ::shutdown(listen_fd_, SHUT_RDWR);
  }
  if (acceptor_.joinable()) acceptor_.join();
  {
    const base::MutexLock lock(mutex_);
    workers.swap(workers_);
  }
  for (std::thread& worker : workers) worker.join();
  ::close(listen_fd_);
}

void SimListener::accept_all() {
  for (;;) {
    const int fd = ::accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    const base::MutexLock lock(mutex_);
    if (stopping_) {
      if (fd >= 0) ::close(fd);
      return;
    }
    if (fd < 0) continue;
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    open_fds_.insert(fd);
    workers_.emplace_back([this, fd] {
      SimConnection connection(fd);
      serve_(connection);
      const base::MutexLock inner(mutex_);
      open_fds_.erase(fd);
      ::close(fd);
    });
  }
}

}  // namespace llorch::test
