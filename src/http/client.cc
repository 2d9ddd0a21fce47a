#include "http/client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "base/check.h"
#include "base/header_text.h"
#include "http/client_parts.h"
#include "http/transport.h"
#include "http/url.h"

namespace llorch::http {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 16 * 1024;
constexpr std::uint32_t kMaxHeadBytes = 64 * 1024;

bool has_side_effects(Method method) {
  return method == Method::Post || method == Method::Patch;
}

// Whether it may come twice: by its nature, or because it has a name by which the peer knows the
// second one.
bool is_repeatable(const ClientRequest& request) {
  return !has_side_effects(request.method) || request.headers.find("Idempotency-Key").has_value();
}

// Whether it says something about us and nothing about the peer.
bool is_own_shortage(const beast::error_code& error) {
  if (error.category() != boost::system::system_category()) return false;
  const int number = error.value();
  return number == EMFILE || number == ENFILE || number == ENOBUFS || number == ENOMEM ||
         number == EADDRNOTAVAIL;
}

Result<std::string> format_request(const ClientRequest& request, const Url& url, bool keep_alive) {
  if (request.method == Method::Other) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("request to {}: no method given", url.peer())};
  }
  std::string out =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: {}\r\n", method_name(request.method),
                  url.target, url.authority(), keep_alive ? "keep-alive" : "close");
  for (const auto& [name, value] : request.headers) {
    if (base::has_control_characters(name) || base::has_control_characters(value)) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("request to {}: a header contains control characters", url.peer())};
    }
    out += fmt::format("{}: {}\r\n", name, value);
  }
  // Servers of ours take nothing else, and not even an empty POST without it.
  if (request.method == Method::Post && !request.headers.find("Content-Type"))
    out += "Content-Type: application/json\r\n";
  if (!request.body.empty() || has_side_effects(request.method)) {
    out += fmt::format("Content-Length: {}\r\n", request.body.size());
  }
  out += "\r\n";
  return out;
}

}  // namespace

// One request and its response on one connection.
class ResponseStream::Impl {
 public:
  Impl(const asio::any_io_executor& executor, Client::IdlePool& pool, TlsContext tls,
       ClientRequest request, Url url)
      : pool_(pool),
        tls_(std::move(tls)),
        request_(std::move(request)),
        url_(std::move(url)),
        started_(Clock::now()),
        transport_(executor) {}

  Task<Status> open();
  Task<Result<std::string>> read_some();
  void close() { transport_.close(); }
  int status() const { return status_; }
  const Headers& headers() const { return headers_; }

 private:
  using Parser = beast::http::response_parser<beast::http::buffer_body>;

  Task<Result<bool>> exchange_heads(const asio::any_io_executor& executor, bool reuse);
  Task<Status> connect(const asio::any_io_executor& executor);
  Task<Status> read_head();
  Task<Result<bool>> refill(std::string_view doing);  // false at the end of the stream
  Clock::time_point deadline(std::chrono::milliseconds step) const;
  Error failure(std::string_view doing, const beast::error_code& error) const;
  void finish();
  void watch_stop(const asio::any_io_executor& executor);
  // A TLS connection is more than its descriptor, and is not kept.
  bool keeps_connections() const { return pool_.is_enabled() && !tls_; }

  Client::IdlePool& pool_;
  const TlsContext tls_;  // null: plain
  const ClientRequest request_;
  const Url url_;
  const Clock::time_point started_;
  Transport transport_;
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  int status_ = 0;
  Headers headers_;
  std::size_t body_bytes_ = 0;
  bool is_finished_ = false;
  std::shared_ptr<Impl*> self_;  // seen, on the strand, by who asks us to stop
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

void ResponseStream::Impl::watch_stop(const asio::any_io_executor& executor) {
  if (!request_.stop.stop_possible()) return;
  self_ = std::make_shared<Impl*>(this);
  // Destroying it waits for a call under way, so the executor is still there.
  on_stop_.emplace(request_.stop, [executor, weak = std::weak_ptr<Impl*>(self_)] {
    asio::post(executor, [weak] {
      if (const std::shared_ptr<Impl*> self = weak.lock()) (*self)->close();
    });
  });
}

Clock::time_point ResponseStream::Impl::deadline(std::chrono::milliseconds step) const {
  const Clock::time_point by_step = Clock::now() + step;
  if (request_.total_timeout.count() == 0) return by_step;
  return std::min(by_step, started_ + request_.total_timeout);
}

// `doing`: empty while the body is read.
Error ResponseStream::Impl::failure(std::string_view doing, const beast::error_code& error) const {
  std::string reading;
  if (doing.empty()) {
    reading = fmt::format("reading the response's body ({} bytes had come)", body_bytes_);
    doing = reading;
  }
  if (request_.stop.stop_requested()) return {ErrorCode::Cancelled, "the request was given up"};
  if (is_own_shortage(error)) {
    return {ErrorCode::OutOfMemory, fmt::format("{}: this process is short of something: {} while "
                                                "{}",
                                                url_.peer(), error.message(), doing)};
  }
  const auto elapsed =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started_);
  if (is_timeout(error)) {
    return {ErrorCode::DeadlineExceeded,
            fmt::format("{}: timed out after {} ms while {}", url_.peer(), elapsed.count(), doing)};
  }
  if (error == boost::system::errc::no_such_file_or_directory) {
    return {
        ErrorCode::Unavailable,
        fmt::format("{}: there is no such socket; whoever serves it does not run", url_.peer())};
  }
  if (error == asio::error::connection_refused) {
    return {ErrorCode::Unavailable,
            fmt::format("{}: connection refused; nothing listens there", url_.peer())};
  }
  if (error == asio::error::eof || error == asio::error::connection_reset ||
      error == asio::error::broken_pipe) {
    return {ErrorCode::Unavailable,
            fmt::format("{}: the peer closed the connection early, while {}", url_.peer(), doing)};
  }
  return {ErrorCode::Unavailable,
          fmt::format("{}: {} while {}", url_.peer(), error.message(), doing)};
}

Task<Status> ResponseStream::Impl::connect(const asio::any_io_executor& executor) {
  beast::error_code error;
  std::vector<Transport::Endpoint> endpoints;
  const asio::ip::address address = asio::ip::make_address(url_.host, error);
  if (!url_.unix_path.empty()) {
    endpoints.emplace_back(asio::local::stream_protocol::endpoint(url_.unix_path));
  } else if (!error) {
    endpoints.emplace_back(tcp::endpoint(address, url_.port));
  } else {
    tcp::resolver resolver(executor);
    const auto [lookup_error, found] = co_await resolver.async_resolve(
        url_.host, std::to_string(url_.port), asio::as_tuple(asio::use_awaitable));
    if (lookup_error) {
      co_return Error{ErrorCode::Unavailable,
                      fmt::format("{}: cannot find the host '{}': {}", url_.peer(), url_.host,
                                  lookup_error.message())};
    }
    for (const auto& entry : found) endpoints.emplace_back(entry.endpoint());
  }
  error = co_await transport_.connect(std::move(endpoints), deadline(request_.connect_timeout));
  if (error) co_return failure("connecting", error);
  if (!tls_) co_return ok_status();
  Status secure =
      co_await transport_.connect_tls(tls_, url_.host, deadline(request_.connect_timeout));
  if (!secure.ok() && request_.stop.stop_requested()) co_return failure("connecting", {});
  co_return secure.ok() ? ok_status() : Status(secure.error().in(url_.peer()));
}

// Sends the request and reads the response's head. False: a reused connection turned out to be
// dead.
Task<Result<bool>> ResponseStream::Impl::exchange_heads(const asio::any_io_executor& executor,
                                                        bool reuse) {
  const Result<std::string> head = format_request(request_, url_, keeps_connections());
  if (!head.ok()) co_return head.error();
  if (!reuse) {
    const Status connected = co_await connect(executor);
    if (!connected.ok()) co_return connected.error();
  }
  if (request_.stop.stop_requested()) co_return failure("connecting", {});
  const beast::error_code error =
      co_await transport_.write(*head, request_.body, deadline(request_.idle_timeout));
  // A server may answer and close before it has read the whole body; its answer is worth more than
  // our error.
  if (error && is_timeout(error)) co_return failure("sending the request", error);
  const Status answered = co_await read_head();
  if (answered.ok()) co_return true;
  if (reuse && answered.error().code == ErrorCode::Unavailable) co_return false;
  co_return answered.error();
}

Task<Status> ResponseStream::Impl::open() {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  watch_stop(executor);
  std::optional<Transport::Socket> idle;
  if (keeps_connections() && is_repeatable(request_)) idle = pool_.take(url_.peer(), executor);
  if (idle) {
    transport_.socket() = std::move(*idle);
    const Result<bool> reused = co_await exchange_heads(executor, true);
    if (!reused.ok()) co_return reused.error();
    if (*reused) co_return ok_status();
    transport_.close();
    buffer_.clear();
  }
  const Result<bool> fresh = co_await exchange_heads(executor, false);
  if (!fresh.ok()) co_return fresh.error();
  co_return ok_status();
}

Task<Result<bool>> ResponseStream::Impl::refill(std::string_view doing) {
  const auto [error, size] =
      co_await transport_.read_some(buffer_.prepare(kReadBytes), deadline(request_.idle_timeout));
  buffer_.commit(size);
  if (error == asio::error::eof) co_return false;
  if (error) co_return failure(doing, error);
  co_return true;
}

Task<Status> ResponseStream::Impl::read_head() {
  constexpr std::string_view kDoing = "waiting for the response";
  parser_.emplace();
  parser_->header_limit(kMaxHeadBytes);
  parser_->body_limit(boost::none);
  if (request_.method == Method::Head) parser_->skip(true);
  while (true) {
    beast::error_code error = beast::http::error::need_more;
    if (buffer_.size() > 0) buffer_.consume(parser_->put(buffer_.data(), error));
    if (error == beast::http::error::need_more) {
      const Result<bool> more = co_await refill(kDoing);
      if (!more.ok()) co_return more.error();
      if (!*more) co_return failure(kDoing, asio::error::eof);
    } else if (error) {
      co_return Error{ErrorCode::Corrupt, fmt::format("{}: the response is not valid HTTP: {}",
                                                      url_.peer(), error.message())};
    } else if (parser_->is_header_done()) {
      if (parser_->get().result_int() >= 200) break;
      parser_.emplace();  // an interim response, such as 100 Continue
      parser_->header_limit(kMaxHeadBytes);
      parser_->body_limit(boost::none);
    }
  }
  parser_->eager(true);
  status_ = static_cast<int>(parser_->get().result_int());
  for (const auto& field : parser_->get()) {
    headers_.add(std::string(field.name_string()), std::string(field.value()));
  }
  co_return ok_status();
}

Task<Result<std::string>> ResponseStream::Impl::read_some() {
  while (!is_finished_) {
    if (parser_->is_done()) {
      finish();
      break;
    }
    if (buffer_.size() > 0) {
      std::string piece(std::min(buffer_.size(), kReadBytes), '\0');
      auto& body = parser_->get().body();
      body = {piece.data(), piece.size(), true};
      beast::error_code error;
      buffer_.consume(parser_->put(buffer_.data(), error));
      const std::size_t got = piece.size() - body.size;
      if (error && error != beast::http::error::need_more &&
          error != beast::http::error::need_buffer) {
        co_return Error{ErrorCode::Corrupt,
                        fmt::format("{}: the response's body is not valid HTTP: {}", url_.peer(),
                                    error.message())};
      }
      body_bytes_ += got;
      if (got > 0) {
        piece.resize(got);
        co_return piece;
      }
      if (parser_->is_done() || (!error && buffer_.size() > 0)) continue;
      if (buffer_.size() > kMaxHeadBytes) {
        co_return Error{ErrorCode::Corrupt,
                        fmt::format("{}: the response's chunk extensions or trailers have more "
                                    "than {} bytes",
                                    url_.peer(), kMaxHeadBytes)};
      }
    }
    const Result<bool> more = co_await refill({});
    if (!more.ok()) co_return more.error();
    if (!*more) {
      beast::error_code error;
      parser_->put_eof(error);
      if (error) co_return failure({}, asio::error::eof);
    }
  }
  co_return std::string();
}

void ResponseStream::Impl::finish() {
  is_finished_ = true;
  const bool reusable = keeps_connections() && parser_->keep_alive() && buffer_.size() == 0;
  if (reusable) pool_.give(url_.peer(), transport_.socket());
  transport_.close();
}

ResponseStream::ResponseStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ResponseStream::~ResponseStream() = default;
ResponseStream::ResponseStream(ResponseStream&&) noexcept = default;
ResponseStream& ResponseStream::operator=(ResponseStream&&) noexcept = default;
int ResponseStream::status() const {
  return impl_->status();
}
const Headers& ResponseStream::headers() const {
  return impl_->headers();
}
Task<Result<std::string>> ResponseStream::read_some() {
  return impl_->read_some();
}
void ResponseStream::close() {
  impl_->close();
}

namespace {

// Reads the rest of the body, refusing more than `max_bytes`.
Task<Result<Response>> read_whole(ResponseStream& stream, std::size_t max_bytes,
                                  std::string_view url) {
  Response response;
  response.status = stream.status();
  response.headers = stream.headers();
  while (true) {
    const Result<std::string> piece = co_await stream.read_some();
    if (!piece.ok()) co_return piece.error();
    if (piece->empty()) co_return response;
    if (piece->size() > max_bytes - response.body.size()) {
      co_return Error{
          ErrorCode::TooLarge,
          fmt::format("{}: the response is larger than the {} bytes allowed", url, max_bytes)};
    }
    response.body += *piece;
  }
}

// Runs one coroutine on a context of its own, on this thread, until it is done or to be stopped.
// The library throws where the system gives it no descriptors, threads or memory.
Result<Response> run_here(Task<Result<Response>> task, const std::stop_token& stop) try {
  std::optional<Result<Response>> outcome;
  asio::io_context io(1);
  const auto keep = [](Task<Result<Response>> inner,
                       std::optional<Result<Response>>& into) -> Task<void> {
    into.emplace(co_await std::move(inner));
  };
  asio::co_spawn(io, keep(std::move(task), outcome), [](const std::exception_ptr& failure) {
    if (failure) std::rethrow_exception(failure);
  });
  const std::stop_callback end(stop, [&io] { io.stop(); });
  io.run();
  if (outcome.has_value()) return std::move(*outcome);
  CHECK(stop.stop_requested(), "the client's coroutine did not end");
  return Error{ErrorCode::Cancelled, "the request was given up"};
} catch (const std::exception& exception) {
  return Error{ErrorCode::OutOfMemory,
               fmt::format("this process cannot make a request now: {}", exception.what())};
}

Task<Result<Response>> stream_to(Client& client, ClientRequest request,
                                 const std::function<bool(std::string_view)>& on_bytes) {
  Result<ResponseStream> stream = co_await client.async_open(request);
  if (!stream.ok()) co_return stream.error();
  if (stream->status() < 200 || stream->status() > 299) {
    co_return co_await read_whole(*stream, request.max_response_bytes, request.url);
  }
  while (true) {
    const Result<std::string> piece = co_await stream->read_some();
    if (!piece.ok()) co_return piece.error();
    if (piece->empty()) break;
    if (!on_bytes(*piece)) co_return Error{ErrorCode::Cancelled, "the reader wanted no more"};
  }
  Response response;
  response.status = stream->status();
  response.headers = stream->headers();
  co_return response;
}

}  // namespace

Client::Client(const ClientOptions& options)
    : idle_(std::make_unique<IdlePool>(options.max_idle_connections)),
      trust_(std::make_unique<TlsTrust>(options)) {}
Client::~Client() = default;

// A blocking call is ended by its own loop.
Result<Response> Client::send(const ClientRequest& request) {
  ClientRequest here = request;
  here.stop = {};
  return run_here(async_send(std::move(here)), request.stop);
}

Result<Response> Client::stream(const ClientRequest& request,
                                const std::function<bool(std::string_view)>& on_bytes) {
  ClientRequest here = request;
  here.stop = {};
  return run_here(stream_to(*this, std::move(here), on_bytes), request.stop);
}

Result<Response> Client::stream_events(const ClientRequest& request,
                                       const std::function<bool(const SseEvent& event)>& on_event) {
  SseReader reader;
  Status readable = ok_status();
  Result<Response> response = stream(request, [&](std::string_view bytes) {
    std::vector<SseEvent> events;
    readable = reader.feed(bytes, events);
    return readable.ok() && std::all_of(events.begin(), events.end(), on_event);
  });
  if (!readable.ok()) return readable.error();
  return response;
}

Task<Result<Response>> Client::async_send(ClientRequest request) {
  const std::size_t max_bytes = request.max_response_bytes;
  const std::string url = request.url;
  Result<ResponseStream> stream = co_await async_open(std::move(request));
  if (!stream.ok()) co_return stream.error();
  co_return co_await read_whole(*stream, max_bytes, url);
}

Task<Result<ResponseStream>> Client::async_open(ClientRequest request) {
  Result<Url> url = parse_url(request.url);
  if (!url.ok()) co_return url.error();
  TlsContext tls;
  if (url->is_tls) {
    Result<TlsContext> trust = trust_->get();
    if (!trust.ok()) co_return trust.error();
    tls = trust.take();
  }
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  auto impl = std::make_unique<ResponseStream::Impl>(executor, *idle_, std::move(tls),
                                                     std::move(request), url.take());
  const Status opened = co_await impl->open();
  if (!opened.ok()) co_return opened.error();
  co_return ResponseStream(std::move(impl));
}

}  // namespace llorch::http
