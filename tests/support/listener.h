// Sockets on loopback, for tests that need a port and no server behind it.
#pragma once

#include <cstdint>
#include <string>

namespace llorch::test {

// Listens on a port, a free one where none is named, and takes connections without a word.
class Listener {
 public:
  explicit Listener(std::uint16_t port = 0);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  bool is_listening() const { return is_listening_; }
  std::uint16_t port() const { return port_; }
  int fd() const { return fd_; }
  std::string url() const;

 private:
  int fd_;
  std::uint16_t port_;
  bool is_listening_ = false;
};

// A socket that is connected to the port; negative with errno when it cannot be.
int connect_to(std::uint16_t port);

// A port that was free a moment ago.
std::uint16_t free_port();

}  // namespace llorch::test
