#include "http/transport.h"

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/error.hpp>
#include <cstring>

namespace llorch::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;

namespace {

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// Small events must leave at once instead of waiting for the acknowledgement of the ones before.
void set_no_delay(Transport::Socket& socket) {
  // The peer may be gone already, which the next operation says; a unix socket has no such option.
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
}

}  // namespace

bool is_timeout(const boost::system::error_code& error) {
  return error == beast::error::timeout;
}

Transport::Transport(Socket socket) : stream_(std::move(socket)) {
  set_no_delay(stream_.socket());
}

Transport::Transport(const asio::any_io_executor& executor) : stream_(executor) {}

Task<Transport::ErrorCode> Transport::connect(std::vector<Endpoint> endpoints, TimePoint deadline) {
  stream_.expires_at(deadline);
  const auto [error, endpoint] = co_await stream_.async_connect(endpoints, kAwait);
  if (!error) set_no_delay(stream_.socket());
  co_return error;
}

Task<std::pair<Transport::ErrorCode, std::size_t>> Transport::read_some(asio::mutable_buffer into,
                                                                        TimePoint deadline) {
  stream_.expires_at(deadline);
  const auto [error, size] = co_await stream_.async_read_some(into, kAwait);
  co_return std::pair(error, size);
}

Task<Transport::ErrorCode> Transport::write(std::string_view head, std::string_view body,
                                            TimePoint deadline) {
  stream_.expires_at(deadline);
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(body)};
  const auto [error, size] = co_await asio::async_write(stream_, parts, kAwait);
  co_return error;
}

bool Transport::is_peer_loopback() const {
  ErrorCode error;
  const Endpoint peer = stream_.socket().remote_endpoint(error);
  if (error) return false;
  tcp::endpoint address;
  if (peer.size() > address.capacity() || peer.protocol().family() == AF_UNIX) return false;
  std::memcpy(address.data(), peer.data(), peer.size());
  return address.address().is_loopback();
}

void Transport::shutdown_send() {
  ErrorCode ignored;  // already disconnected is as good
  stream_.socket().shutdown(Socket::shutdown_send, ignored);
}

void Transport::close() {
  stream_.close();
}

}  // namespace llorch::http
