#include "http/transport.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
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

// Closes the connection when an operation lasts beyond its deadline. Deadlines come with every
// token and are hardly ever reached: the timer is moved only when one is earlier than the moment it
// waits for, and looks at the newest deadline when it wakes.
struct Transport::Alarm {
  explicit Alarm(const asio::any_io_executor& executor) : timer(executor) {}

  static void wait(const std::shared_ptr<Alarm>& alarm, TimePoint until) {
    alarm->armed = until;
    alarm->timer.expires_at(until);
    alarm->timer.async_wait([alarm](const ErrorCode& error) {
      if (!error && alarm->socket != nullptr) wake(alarm);
    });
  }
  static void wake(const std::shared_ptr<Alarm>& alarm) {
    alarm->armed = TimePoint::max();
    if (alarm->deadline == TimePoint::max()) return;  // nothing is under way
    if (alarm->deadline > std::chrono::steady_clock::now()) return wait(alarm, alarm->deadline);
    alarm->has_rung = true;
    ErrorCode ignored;
    alarm->socket->close(ignored);
  }

  asio::steady_timer timer;
  Socket* socket = nullptr;               // null: its connection is gone
  TimePoint deadline = TimePoint::max();  // of the operation under way
  TimePoint armed = TimePoint::max();     // when the timer wakes
  bool has_rung = false;
};

void Transport::begin(TimePoint deadline) {
  alarm_->deadline = deadline;
  if (deadline < alarm_->armed) Alarm::wait(alarm_, deadline);
}

Transport::ErrorCode Transport::end(ErrorCode error) {
  alarm_->deadline = TimePoint::max();
  return error && alarm_->has_rung ? beast::error::timeout : error;
}

Transport::Transport(Socket socket)
    : socket_(std::move(socket)), alarm_(std::make_shared<Alarm>(socket_.get_executor())) {
  alarm_->socket = &socket_;
  set_no_delay(socket_);
}

Transport::Transport(const asio::any_io_executor& executor)
    : socket_(executor), alarm_(std::make_shared<Alarm>(executor)) {
  alarm_->socket = &socket_;
}

Transport::~Transport() {
  alarm_->socket = nullptr;
  alarm_->timer.cancel();
}

Task<Transport::ErrorCode> Transport::connect(std::vector<Endpoint> endpoints, TimePoint deadline) {
  begin(deadline);
  const auto [error, endpoint] = co_await asio::async_connect(socket_, endpoints, kAwait);
  if (!error) set_no_delay(socket_);
  co_return end(error);
}

Task<Transport::ErrorCode> Transport::accept_tls(TlsContext context, TimePoint deadline) {
  tls_context_ = std::move(context);
  tls_ = std::make_unique<Tls>(socket_, *tls_context_);
  begin(deadline);
  const auto [error] = co_await tls_->async_handshake(asio::ssl::stream_base::server, kAwait);
  co_return end(error);
}

Task<Status> Transport::connect_tls(TlsContext context, std::string host, TimePoint deadline) {
  using llorch::ErrorCode;
  tls_context_ = std::move(context);
  tls_ = std::make_unique<Tls>(socket_, *tls_context_);
  if (!expect_host(tls_->native_handle(), host)) {
    co_return Error{ErrorCode::InvalidArgument,
                    fmt::format("'{}' cannot be the name of a TLS server", host)};
  }
  begin(deadline);
  const auto [result] = co_await tls_->async_handshake(asio::ssl::stream_base::client, kAwait);
  const Transport::ErrorCode error = end(result);
  if (!error) co_return ok_status();
  if (is_timeout(error))
    co_return Error{ErrorCode::DeadlineExceeded, "the TLS handshake took too long"};
  co_return explain_handshake(tls_->native_handle(), error, host);
}

Task<std::pair<Transport::ErrorCode, std::size_t>> Transport::read_some(asio::mutable_buffer into,
                                                                        TimePoint deadline) {
  begin(deadline);
  if (tls_) {
    const auto [error, size] = co_await tls_->async_read_some(into, kAwait);
    co_return std::pair(end(error), size);
  }
  const auto [error, size] = co_await socket_.async_read_some(into, kAwait);
  co_return std::pair(end(error), size);
}

// A read of TLS 1.3 writes nothing, so it may come between the parts of a write.
std::size_t Transport::read_now(asio::mutable_buffer into, ErrorCode& error) {
  return tls_ ? tls_->read_some(into, error) : socket_.read_some(into, error);
}

Task<Transport::ErrorCode> Transport::write(std::string_view head, std::string_view body,
                                            TimePoint deadline) {
  begin(deadline);
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(body)};
  if (tls_) {
    const auto [error, size] = co_await asio::async_write(*tls_, parts, kAwait);
    co_return end(error);
  }
  const auto [error, size] = co_await asio::async_write(socket_, parts, kAwait);
  co_return end(error);
}

bool Transport::is_peer_loopback() const {
  ErrorCode error;
  const Endpoint peer = socket_.remote_endpoint(error);
  if (error) return false;
  tcp::endpoint address;
  if (peer.size() > address.capacity() || peer.protocol().family() == AF_UNIX) return false;
  std::memcpy(address.data(), peer.data(), peer.size());
  return address.address().is_loopback();
}

void Transport::shutdown_send() {
  ErrorCode ignored;  // already disconnected is as good
  // One small record; the peer's own is not waited for.
  if (tls_ && socket_.non_blocking()) tls_->shutdown(ignored);
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Transport::close() {
  ErrorCode ignored;
  socket_.close(ignored);
}

}  // namespace llorch::http
