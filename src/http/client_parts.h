// What the requests of one client share: connections that nobody uses now, and whom TLS believes.
// Private to http/client.cc.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/system/error_code.hpp>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "http/client.h"
#include "http/tls.h"
#include "http/transport.h"

namespace llorch::http {

// Connections nobody uses, as bare descriptors, so that they can move between executors.
class Client::IdlePool {
 public:
  explicit IdlePool(std::size_t capacity) : capacity_(capacity) {}
  ~IdlePool() {
    for (const Idle& idle : idle_) ::close(idle.fd);
  }
  IdlePool(const IdlePool&) = delete;
  IdlePool& operator=(const IdlePool&) = delete;

  bool is_enabled() const { return capacity_ > 0; }

  // A connection the peer has neither closed nor written to.
  std::optional<Transport::Socket> take(const std::string& peer,
                                        const boost::asio::any_io_executor& executor) {
    const base::MutexLock lock(mutex_);
    close_old();
    for (std::size_t i = idle_.size(); i-- > 0;) {
      if (idle_[i].peer != peer) continue;
      const Idle idle = idle_[i];
      idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
      char byte = 0;
      const bool is_silent = ::recv(idle.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
                             (errno == EAGAIN || errno == EWOULDBLOCK);
      Transport::Socket socket(executor);
      boost::system::error_code error;
      if (is_silent) socket.assign(Transport::Protocol(idle.family, 0), idle.fd, error);
      if (is_silent && !error) return socket;
      ::close(idle.fd);
    }
    return std::nullopt;
  }

  void give(const std::string& peer, Transport::Socket& socket) {
    boost::system::error_code error;
    const int family = socket.local_endpoint(error).protocol().family();
    if (error) return;
    const base::MutexLock lock(mutex_);
    close_old();
    if (idle_.size() >= capacity_) return;
    const int fd = socket.release(error);
    if (!error) idle_.push_back({peer, fd, family, Clock::now()});
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kIdleTime{30};  // less than servers of ours wait

  struct Idle {
    std::string peer;
    int fd;
    int family;
    Clock::time_point since;
  };

  // They stand in the order in which they came.
  void close_old() LLORCH_REQUIRES(mutex_) {
    const auto old = Clock::now() - kIdleTime;
    std::size_t count = 0;
    while (count < idle_.size() && idle_[count].since < old) ::close(idle_[count++].fd);
    idle_.erase(idle_.begin(), idle_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  const std::size_t capacity_;
  base::Mutex mutex_;
  std::vector<Idle> idle_ LLORCH_GUARDED_BY(mutex_);
};

// Which authorities are believed about servers, read when they are first needed. Any thread.
class TlsAuthorities {
 public:
  explicit TlsAuthorities(const ClientOptions& options)
      : ca_file_(options.ca_file), more_ca_file_(options.more_ca_file) {}

  Result<TlsContext> get() {
    const base::MutexLock lock(mutex_);
    if (context_) return context_;
    Result<TlsContext> made = make_client_tls(ca_file_, more_ca_file_);
    if (made.ok()) context_ = *made;
    return made;
  }

 private:
  const std::string ca_file_;
  const std::string more_ca_file_;
  base::Mutex mutex_;
  TlsContext context_ LLORCH_GUARDED_BY(mutex_);
};

class Client::TlsTrust : public TlsAuthorities {
 public:
  using TlsAuthorities::TlsAuthorities;
};

}  // namespace llorch::http
