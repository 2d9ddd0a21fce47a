// One connection, TCP or a unix socket, with a deadline on every operation. Private to http/. It is
// the only file that would learn about TLS: everything above reads and writes bytes here.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/system/error_code.hpp>

#include <chrono>
#include <string_view>
#include <vector>

#include "http/task.h"

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

  Task<ErrorCode> connect(std::vector<Endpoint> endpoints, TimePoint deadline);
  // A read that times out closes the connection: error is then beast::error::timeout.
  Task<std::pair<ErrorCode, std::size_t>> read_some(boost::asio::mutable_buffer into,
                                                    TimePoint deadline);
  // Both parts, one after the other, in one system call where the kernel takes them.
  Task<ErrorCode> write(std::string_view head, std::string_view body, TimePoint deadline);

  bool is_peer_loopback() const;

  void shutdown_send();
  void close();
  Socket& socket() { return stream_.socket(); }

 private:
  boost::beast::basic_stream<Protocol> stream_;
};

bool is_timeout(const boost::system::error_code& error);

}  // namespace llorch::http
