#include "http/pipe.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/header_text.h"
#include "http/client_parts.h"
#include "http/exchange.h"
#include "http/feed.h"
#include "http/transport.h"
#include "http/unix_path.h"
#include "http/url.h"

namespace llorch::http {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr std::size_t kReadBytes = 16 * 1024;
constexpr std::size_t kHeadBytesMax = 16 * 1024;
constexpr int kKeepAliveIdleS = 15;
constexpr int kKeepAlivePauseS = 5;
constexpr int kKeepAliveProbes = 3;
constexpr int kUnreadMs = 30'000;
constexpr Transport::TimePoint kNoDeadline = Transport::TimePoint::max();
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

// A peer that is gone without a word is noticed by the system. Not for unix sockets, which need
// none.
void keep_alive(Transport::Socket& socket) {
  const auto set = [&socket](int level, int name, int value) {
    ::setsockopt(socket.native_handle(), level, name, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleS);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAlivePauseS);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, kUnreadMs);
}

Error gone(const boost::system::error_code& error) {
  return {ErrorCode::Unavailable, fmt::format("the connection ended: {}", error.message())};
}

Result<std::string> format_upgrade(const ClientRequest& request, const Url& url,
                                   std::string_view protocol) {
  std::string out = fmt::format(
      "{} {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: {}\r\nContent-Type: "
      "application/json\r\nContent-Length: 0\r\n",
      method_name(request.method), url.target, url.authority(), protocol);
  for (const auto& [name, value] : request.headers) {
    if (base::has_control_characters(name) || base::has_control_characters(value))
      return Error{ErrorCode::InvalidArgument, "a header contains control characters"};
    out += fmt::format("{}: {}\r\n", name, value);
  }
  return out + "\r\n";
}

// What stands behind "HTTP/1.1 ".
int status_of(std::string_view head) {
  constexpr std::string_view kVersion = "HTTP/1.1 ";
  int status = 0;
  if (!head.starts_with(kVersion)) return 0;
  for (const char c : head.substr(kVersion.size(), 3)) {
    if (c < '0' || c > '9') return 0;
    status = 10 * status + (c - '0');
  }
  return status;
}

Error refusal_of(int status, std::string_view peer, std::string_view body) {
  const ErrorCode code = status == 401 || status == 403 ? ErrorCode::Unauthorized
                         : status == 404                ? ErrorCode::NotFound
                         : status == 409                ? ErrorCode::Conflict
                                                        : ErrorCode::Unavailable;
  return {code, fmt::format("{}: no connection, status {}: {}", peer, status, body)};
}

}  // namespace

class Pipe::Impl {
 public:
  Impl(Transport& transport, std::string first)
      : transport_(&transport), first_(std::move(first)) {}
  Impl(std::unique_ptr<Transport> own, std::string first)
      : own_(std::move(own)), transport_(own_.get()), first_(std::move(first)) {}

  Transport& transport() { return *transport_; }
  std::string take_first() { return std::exchange(first_, {}); }

 private:
  std::unique_ptr<Transport> own_;  // null: somebody else's
  Transport* transport_;
  std::string first_;  // had come before the pipe was one
};

Pipe::Pipe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Pipe::~Pipe() = default;
Pipe::Pipe(Pipe&&) noexcept = default;
Pipe& Pipe::operator=(Pipe&&) noexcept = default;

Pipe Pipe::take_over(Responder& responder) {
  Exchange& exchange = *responder.exchange_;
  std::string first = exchange.release_input();
  keep_alive(exchange.transport().socket());
  return Pipe(std::make_unique<Impl>(exchange.transport(), std::move(first)));
}

Task<Result<Pipe>> Pipe::adopt(int fd) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Transport::Socket socket(executor);
  boost::system::error_code error;
  socket.assign(asio::local::stream_protocol(), fd, error);
  if (error) {
    ::close(fd);
    co_return gone(error);
  }
  socket.non_blocking(true, error);
  auto transport = std::make_unique<Transport>(std::move(socket));
  co_return Pipe(std::make_unique<Impl>(std::move(transport), std::string()));
}

Task<Result<Pipe>> Pipe::connect_unix(std::string path) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  if (path.size() > kUnixPathBytesMax)
    co_return Error{ErrorCode::InvalidArgument, path + ": too long for a socket's name"};
  auto transport = std::make_unique<Transport>(executor);
  std::vector<Transport::Endpoint> endpoints;
  endpoints.emplace_back(asio::local::stream_protocol::endpoint(path));
  const boost::system::error_code error =
      co_await transport->connect(std::move(endpoints), kNoDeadline);
  if (error) co_return Error{ErrorCode::Unavailable, fmt::format("{}: {}", path, error.message())};
  co_return Pipe(std::make_unique<Impl>(std::move(transport), std::string()));
}

Task<Result<std::string>> Pipe::read_some() {
  std::string bytes = impl_->take_first();
  if (!bytes.empty()) co_return bytes;
  bytes.resize(kReadBytes);
  const auto [error, size] =
      co_await impl_->transport().read_some(asio::buffer(bytes), kNoDeadline);
  if (size == 0 && error == asio::error::eof) co_return std::string();
  if (size == 0 && error) co_return gone(error);
  bytes.resize(size);
  co_return bytes;
}

Task<Status> Pipe::write(std::string_view bytes) {
  const boost::system::error_code error = co_await impl_->transport().write(bytes, {}, kNoDeadline);
  if (error) co_return gone(error);
  co_return ok_status();
}

void Pipe::close() {
  impl_->transport().shutdown_send();
  impl_->transport().close();
}

Task<Status> send_upgrade(Responder& responder, std::string protocol) {
  Response response;
  response.status = 101;
  response.headers.add("Upgrade", std::move(protocol));
  co_return co_await responder.send(std::move(response));
}

// --- two pipes ---

namespace {

struct Joint {
  Joint(Pipe first, Pipe second) : a(std::move(first)), b(std::move(second)) {}

  Pipe a;
  Pipe b;
  bool has_other_ended = false;
  Waker waker;
};

// Everything from one to the other; then neither is of use.
Task<void> carry(std::shared_ptr<Joint> joint, bool is_forward) {
  Pipe& from = is_forward ? joint->a : joint->b;
  Pipe& to = is_forward ? joint->b : joint->a;
  bool is_open = true;
  while (is_open) {
    const Result<std::string> bytes = co_await from.read_some();
    is_open = bytes.ok() && !bytes->empty();
    if (!is_open) break;
    const Status written = co_await to.write(*bytes);
    is_open = written.ok();
  }
  from.close();
  to.close();
}

Task<void> carry_back(std::shared_ptr<Joint> joint) {
  co_await carry(joint, false);
  joint->has_other_ended = true;
  joint->waker.notify();
}

}  // namespace

Task<void> join_pipes(Pipe a, Pipe b) {
  const auto joint = std::make_shared<Joint>(std::move(a), std::move(b));
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::co_spawn(executor, carry_back(joint), asio::detached);
  co_await carry(joint, true);
  while (!joint->has_other_ended) {
    const auto look = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    co_await joint->waker.wait_until(look);
  }
}

// --- dialling ---

class PipeDialer::Trust : public TlsAuthorities {
 public:
  using TlsAuthorities::TlsAuthorities;
};

PipeDialer::PipeDialer(const ClientOptions& trust) : trust_(std::make_unique<Trust>(trust)) {}
PipeDialer::~PipeDialer() = default;

namespace {

Task<Result<std::vector<Transport::Endpoint>>> resolve(const Url& url) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  std::vector<Transport::Endpoint> endpoints;
  tcp::resolver resolver(executor);
  const auto [error, found] =
      co_await resolver.async_resolve(url.host, std::to_string(url.port), kAwait);
  if (error) {
    co_return Error{ErrorCode::Unavailable,
                    fmt::format("{}: cannot find the host: {}", url.peer(), error.message())};
  }
  for (const auto& entry : found) endpoints.emplace_back(entry.endpoint());
  co_return endpoints;
}

}  // namespace

Task<Result<Pipe>> PipeDialer::open(ClientRequest request, std::string protocol) {
  const Result<Url> url = parse_url(request.url);
  if (!url.ok()) co_return url.error();
  const Result<std::string> head = format_upgrade(request, *url, protocol);
  if (!head.ok()) co_return head.error();
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Result<std::vector<Transport::Endpoint>> endpoints = co_await resolve(*url);
  if (!endpoints.ok()) co_return endpoints.error();
  const Transport::TimePoint deadline = std::chrono::steady_clock::now() + request.total_timeout;
  auto transport = std::make_unique<Transport>(executor);
  boost::system::error_code error = co_await transport->connect(endpoints.take(), deadline);
  if (error) co_return gone(error).in(url->peer());
  if (url->is_tls) {
    const Result<TlsContext> trust = trust_->get();
    if (!trust.ok()) co_return trust.error();
    Status secure = co_await transport->connect_tls(*trust, url->host, deadline);
    if (!secure.ok()) co_return secure.error().in(url->peer());
  }
  error = co_await transport->write(*head, {}, deadline);
  if (error) co_return gone(error).in(url->peer());
  std::string answer;
  std::size_t end = std::string::npos;
  while (end == std::string::npos && answer.size() < kHeadBytesMax) {
    const std::size_t before = answer.size();
    answer.resize(before + kReadBytes);
    const auto [failure, size] =
        co_await transport->read_some(asio::buffer(answer.data() + before, kReadBytes), deadline);
    answer.resize(before + size);
    if (size == 0) co_return gone(failure).in(url->peer());
    end = answer.find("\r\n\r\n");
  }
  const int status = status_of(answer);
  if (end == std::string::npos || status == 0)
    co_return Error{ErrorCode::Corrupt, url->peer() + ": the answer is not HTTP"};
  std::string rest = answer.substr(end + 4);
  if (status != 101) co_return refusal_of(status, url->peer(), rest);
  keep_alive(transport->socket());
  co_return Pipe(std::make_unique<Pipe::Impl>(std::move(transport), std::move(rest)));
}

// --- listening ---

Task<Status> accept_pipes(std::string path, std::function<void(int fd)> on_connection,
                          std::stop_token stop) {
  using Acceptor = asio::basic_socket_acceptor<Transport::Protocol>;
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  UnixPath place;
  const Result<int> listener = place.bind(path);
  if (!listener.ok()) co_return listener.error();
  const auto acceptor = std::make_shared<Acceptor>(executor);
  boost::system::error_code error;
  acceptor->assign(asio::local::stream_protocol(), *listener, error);
  if (error) {
    ::close(*listener);
    co_return gone(error);
  }
  const std::stop_callback end(stop, [executor, weak = std::weak_ptr<Acceptor>(acceptor)] {
    asio::post(executor, [weak] {
      boost::system::error_code ignored;
      if (const auto still = weak.lock()) still->close(ignored);
    });
  });
  while (acceptor->is_open()) {
    Transport::Socket socket(executor);
    const auto [failure] = co_await acceptor->async_accept(socket, kAwait);
    if (!failure) {
      const int fd = socket.release(error);
      if (!error) on_connection(fd);
      continue;
    }
    if (!acceptor->is_open()) break;
    Waker pause;  // no descriptors, most likely
    co_await pause.wait_until(std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
  }
  co_return ok_status();
}

}  // namespace llorch::http
