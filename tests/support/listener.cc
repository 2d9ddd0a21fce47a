#include "support/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace llorch::test {
namespace {

sockaddr_in address_of(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

Listener::Listener(std::uint16_t port)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), port_(port) {
  const int yes = 1;  // a port that was just left is free
  ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = address_of(port);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  is_listening_ = ::bind(fd_, generic, size) == 0 && ::listen(fd_, 16) == 0 &&
                  ::getsockname(fd_, generic, &size) == 0;
  if (is_listening_) port_ = ntohs(address.sin_port);
}

Listener::~Listener() {
  ::close(fd_);
}

std::string Listener::url() const {
  return "http://127.0.0.1:" + std::to_string(port_);
}

int connect_to(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = address_of(port);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

std::uint16_t free_port() {
  return Listener().port();
}

}  // namespace llorch::test
