// Loopback sockets for servers in tests: blocking, with a way out.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace llorch::test {

// One accepted connection.
class SimConnection {
 public:
  explicit SimConnection(int fd) : fd_(fd) {}

  // Up to and with the empty line behind a request's head; empty: the client is gone or sent more
  // than 64 KiB.
  std::string read_head();
  bool write(std::string_view bytes);  // false: the client is gone
  // Waits until the client goes away.
  void wait_for_end();
  // The client sees "connection reset" instead of an orderly end.
  void reset_at_end();

 private:
  int fd_;
  std::string buffer_;  // what came behind the last head
};

// Listens on 127.0.0.1 at a free port and, once started, serves each connection on a thread of its
// own. The destructor ends them all.
class SimListener {
 public:
  SimListener();
  ~SimListener();
  SimListener(const SimListener&) = delete;
  SimListener& operator=(const SimListener&) = delete;

  std::uint16_t port() const { return port_; }
  void start(std::function<void(SimConnection&)> serve);  // once

 private:
  void accept_all();

  std::function<void(SimConnection&)> serve_;
  int listen_fd_ = -1;
  std::uint16_t port_ = 0;
  base::Mutex mutex_;
  bool stopping_ LLORCH_GUARDED_BY(mutex_) = false;
  std::set<int> open_fds_ LLORCH_GUARDED_BY(mutex_);
  std::vector<std::thread> workers_ LLORCH_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

}  // namespace llorch::test
