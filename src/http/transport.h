// One connection, TCP or a unix socket, plain or TLS, with a deadline on every operation. Private
// to http/. Everything above reads and writes bytes here.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/system/error_code.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/task.h"
#include "http/tls.h"

namespace llorch::http {

class Transport {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using ErrorCode = boost::system::error_code;
  using Protocol = boost::asio::generic::stream_protocol;
  using Socket = Protocol::socket;
  using Endpoint = Protocol::endpoint;

  explicit Transport(Socket socket);
  explicit Transport(const boost::asio::any_io_executor& executor);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  Task<ErrorCode> connect(std::vector<Endpoint> endpoints, TimePoint deadline);
  // From here on everything is encrypted. The server's side, and the client's, which wants a
  // certificate for `host` and says why there is none.
  Task<ErrorCode> accept_tls(TlsContext context, TimePoint deadline);
  Task<Status> connect_tls(TlsContext context, std::string host, TimePoint deadline);
  bool is_tls() const { return tls_ != nullptr; }
  // Goes on without, after a handshake that did not come about and said nothing yet.
  void drop_tls() { tls_.reset(); }
  // A read that times out closes the connection: error is then beast::error::timeout.
  Task<std::pair<ErrorCode, std::size_t>> read_some(boost::asio::mutable_buffer into,
                                                    TimePoint deadline);
  // What is there already, at once; error is asio's would_block where there is nothing. Not while
  // read_some waits.
  std::size_t read_now(boost::asio::mutable_buffer into, ErrorCode& error);
  // Both parts, one after the other, in one system call where the kernel takes them.
  Task<ErrorCode> write(std::string_view head, std::string_view body, TimePoint deadline);

  bool is_peer_loopback() const;

  // Says that nothing more comes.
  void shutdown_send();
  void close();
  Socket& socket() { return socket_; }

 private:
  using Tls = boost::asio::ssl::stream<Socket&>;
  struct Alarm;

  // One operation has a deadline at a time.
  void begin(TimePoint deadline);
  ErrorCode end(ErrorCode error);  // timeout, where that is what happened

  Socket socket_;
  std::shared_ptr<Alarm> alarm_;
  TlsContext tls_context_;
  std::unique_ptr<Tls> tls_;  // null: plain
};

bool is_timeout(const boost::system::error_code& error);

}  // namespace llorch::http
