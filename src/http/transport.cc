#include "http/transport.h"

#include <fmt/format.h>

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

Task<Transport::ErrorCode> Transport::accept_tls(TlsContext context, TimePoint deadline) {
  tls_context_ = std::move(context);
  tls_ = std::make_unique<Tls>(stream_, *tls_context_);
  stream_.expires_at(deadline);
  const auto [error] = co_await tls_->async_handshake(asio::ssl::stream_base::server, kAwait);
  co_return error;
}

Task<Status> Transport::connect_tls(TlsContext context, std::string host, TimePoint deadline) {
  using llorch::ErrorCode;
  tls_context_ = std::move(context);
  tls_ = std::make_unique<Tls>(stream_, *tls_context_);
  if (!expect_host(tls_->native_handle(), host)) {
    co_return Error{ErrorCode::InvalidArgument,
                    fmt::format("'{}' cannot be the name of a TLS server", host)};
  }
  stream_.expires_at(deadline);
  const auto [error] = co_await tls_->async_handshake(asio::ssl::stream_base::client, kAwait);
  if (!error) co_return ok_status();
  if (is_timeout(error))
    co_return Error{ErrorCode::DeadlineExceeded, "the TLS handshake took too long"};
  co_return explain_handshake(tls_->native_handle(), error, host);
}

Task<std::pair<Transport::ErrorCode, std::size_t>> Transport::read_some(asio::mutable_buffer into,
                                                                        TimePoint deadline) {
  stream_.expires_at(deadline);
  if (tls_) {
    const auto [error, size] = co_await tls_->async_read_some(into, kAwait);
    co_return std::pair(error, size);
  }
  const auto [error, size] = co_await stream_.async_read_some(into, kAwait);
  co_return std::pair(error, size);
}

// A read of TLS 1.3 writes nothing, so it may come between the parts of a write.
std::size_t Transport::read_now(asio::mutable_buffer into, ErrorCode& error) {
  return tls_ ? tls_->read_some(into, error) : stream_.socket().read_some(into, error);
}

Task<Transport::ErrorCode> Transport::write(std::string_view head, std::string_view body,
                                            TimePoint deadline) {
  stream_.expires_at(deadline);
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(body)};
  if (tls_) {
    const auto [error, size] = co_await asio::async_write(*tls_, parts, kAwait);
    co_return error;
  }
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
  // One small record; the peer's own is not waited for.
  if (tls_ && stream_.socket().non_blocking()) tls_->shutdown(ignored);
  stream_.socket().shutdown(Socket::shutdown_send, ignored);
}

void Transport::close() {
  stream_.close();
}

}  // namespace llorch::http
