#include "http/connection.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/job_border.h"
#include "base/log.h"
#include "http/body_share.h"
#include "http/guard.h"
#include "http/url.h"

namespace llorch::http {

namespace asio = boost::asio;
namespace beast = boost::beast;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 16 * 1024;
constexpr std::size_t kIdleReadBytes = 1024;  // thousands may wait for a next request
// What a client may send ahead while its last request is still being answered; past that we only
// notice its disconnect when we write.
constexpr std::size_t kReadAheadBytes = 32 * 1024;
// A chunk's size line, or the trailers, as far as they have come without their end.
constexpr std::size_t kFrameBytesMax = 16 * 1024;
constexpr std::size_t kBufferBytesMax = kReadAheadBytes + 2 * kReadBytes;
constexpr std::size_t kChunkExtensionBytesMax = 4096;  // of one body
constexpr std::chrono::milliseconds kLingerTime{1000};
constexpr std::size_t kLingerBytes = std::size_t{4} << 20;

const base::Logger& logger() {
  static const base::Logger instance("http");
  return instance;
}

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

Headers copy_headers(const beast::http::fields& fields) {
  Headers headers;
  for (const auto& field : fields) {
    headers.add(std::string(view(field.name_string())), std::string(view(field.value())));
  }
  return headers;
}

template <class Parser>
bool expects_body(const Parser& parser) {
  return parser.chunked() || parser.content_length().value_or(0) > 0;
}

// A field that goes on in the next line. Senders may not make one (RFC 9112, 5.2), and who stands
// in front may not see it as we would: a body's end could be another one for each.
bool has_folded_field(std::string_view head) {
  return head.find("\r\n ") != head.npos || head.find("\r\n\t") != head.npos;
}

Refusal head_refusal(const beast::error_code& error, std::size_t max_bytes) {
  if (error == beast::http::error::header_limit) {
    return refuse_malformed(
        fmt::format("the request's head has more than the {} bytes allowed", max_bytes), true);
  }
  return refuse_malformed(fmt::format("malformed HTTP request: {}", error.message()), false);
}

Error body_error(const beast::error_code& error, std::size_t limit) {
  if (error == beast::http::error::body_limit) {
    return {ErrorCode::TooLarge,
            fmt::format("the request's body has more than the {} bytes allowed here", limit)};
  }
  if (error == beast::http::error::header_limit) {
    return {ErrorCode::InvalidArgument,
            fmt::format("malformed HTTP request: chunk extensions or trailers have more than the "
                        "{} bytes allowed",
                        kChunkExtensionBytesMax)};
  }
  return {ErrorCode::InvalidArgument, fmt::format("malformed HTTP request: {}", error.message())};
}

}  // namespace

Connection::Connection(Transport::Socket socket, bool is_unix, ConnectionShared& shared)
    : shared_(shared), transport_(std::move(socket)), is_unix_(is_unix), buffer_(kBufferBytesMax) {
  beast::error_code error;
  transport_.socket().non_blocking(true, error);  // for take_readable_bytes()
  from_loopback_ = is_unix_ || transport_.is_peer_loopback();
}

Task<void> Connection::run() {
  // A co_await in the condition of an empty loop is miscompiled by gcc 12.
  bool is_open = co_await begin();
  while (is_open) is_open = co_await serve_one();
  if (must_linger_ || buffer_.size() > 0) {
    co_await linger();
  } else if (is_whole_ && transport_.is_tls()) {
    transport_.shutdown_send();  // without it the end of a TLS connection looks like an attack
  }
  transport_.close();
}

Task<bool> Connection::begin() {
  TlsContext tls;
  if (!is_unix_) {
    const base::MutexLock lock(shared_.tls_mutex);
    tls = shared_.tls;
  }
  if (!tls) co_return true;
  const Transport::TimePoint deadline = Clock::now() + shared_.options.header_timeout;
  const Transport::ErrorCode error = co_await transport_.accept_tls(std::move(tls), deadline);
  if (!error) co_return !aborted_;
  logger().debug("no TLS connection", {{"why", error.message()}});
  if (is_plain_http(error) && !aborted_) co_await answer_plain_http();
  transport_.close();
  co_return false;
}

// Who asks without TLS hears in plain words what is wrong. What it sent is gone, unread.
Task<void> Connection::answer_plain_http() {
  transport_.drop_tls();
  Exchange exchange(transport_, shared_.options.write_timeout);
  exchange.set_correlation_id(correlation_id_of({}));
  const Error advice{ErrorCode::InvalidArgument,
                     "this port speaks TLS: ask it with https:// instead of http://"};
  co_await answer_error(exchange, advice);
  co_await linger();
}

Task<void> Connection::refuse() {
  const bool is_open = co_await begin();
  if (!is_open) co_return;
  waiting_ = false;
  Exchange exchange(transport_, shared_.options.write_timeout);
  exchange.set_correlation_id(correlation_id_of({}));
  const Error full{ErrorCode::Unavailable,
                   fmt::format("all {} connections of this server are in use; try again",
                               shared_.options.max_connections)};
  co_await answer_error(exchange, full);
  co_await linger();
  transport_.close();
}

void Connection::begin_drain() {
  if (idle_) abort();
}

void Connection::make_room() {
  must_leave_ = true;
  if (waiting_) abort();
}

void Connection::abort() {
  aborted_ = true;
  transport_.close();
  if (current_ != nullptr) current_->mark_gone();
}

Task<bool> Connection::serve_one() {
  idle_ = buffer_.size() == 0;
  if (aborted_ || must_leave_ || (idle_ && shared_.draining)) co_return false;
  if (idle_) buffer_.shrink_to_fit();
  auto parser = std::make_unique<Parser>();
  Exchange exchange(transport_, shared_.options.write_timeout);
  waiting_ = true;
  const bool has_head = co_await read_head(*parser, exchange);
  waiting_ = false;
  if (!has_head) co_return false;

  const Clock::time_point since = Clock::now();
  Request request;
  request.from_loopback = from_loopback_;
  request.headers = copy_headers(parser->get());
  request.method = method_of(view(parser->get().method_string()));
  request.correlation_id = correlation_id_of(request.headers);
  exchange.set_correlation_id(request.correlation_id);
  exchange.set_form(request.method == Method::Head, parser->get().version() >= 11,
                    parser->keep_alive());

  const Admission admission = admit(*parser, request);
  exchange.set_common_headers(admission.headers);
  if (admission.refusal || admission.is_preflight) {
    // A body will not be read.
    if (expects_body(*parser) || (admission.refusal && admission.refusal->ends_connection)) {
      must_linger_ = true;
      exchange.forbid_keep_alive();
    }
    if (admission.refusal) {
      co_await answer_refusal(exchange, *admission.refusal, admission.options);
    } else {
      Response allowed;
      allowed.status = 204;
      [[maybe_unused]] const Status sent = co_await exchange.send(std::move(allowed));
    }
    is_whole_ = exchange.state() == Exchange::State::Answered;
    log_request(request, exchange, since);
    co_return exchange.keeps_alive();
  }
  if (expects_body(*parser)) {
    if (!co_await read_body(*parser, exchange, admission)) co_return false;
    request.body = std::move(parser->get().body());
  }
  parser.reset();
  buffer_.shrink_to_fit();  // a stream may now stay for hours
  if (shared_.draining || must_leave_) exchange.forbid_keep_alive();
  co_await dispatch(*admission.route, request, exchange);
  exchange.flush_head();  // of an answer that breaks off at once
  is_whole_ = exchange.state() == Exchange::State::Answered;
  log_request(request, exchange, since);
  co_return exchange.keeps_alive() && !exchange.is_gone();
}

Task<bool> Connection::refill(Transport::TimePoint deadline, std::size_t max_bytes) {
  const auto [error, size] = co_await transport_.read_some(buffer_.prepare(max_bytes), deadline);
  buffer_.commit(size);
  co_return !error && !aborted_;
}

Task<bool> Connection::read_head(Parser& parser, Exchange& exchange) {
  const ServerOptions& options = shared_.options;
  parser.header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
  parser.body_limit(boost::none);  // decided by the route
  if (idle_ && !co_await refill(Clock::now() + options.idle_timeout, kIdleReadBytes))
    co_return false;
  idle_ = false;
  const Clock::time_point deadline = Clock::now() + options.header_timeout;
  while (true) {
    beast::error_code error;
    const auto ahead = buffer_.data();
    const std::size_t used = parser.put(ahead, error);
    // The parser takes a head as a whole.
    if (!error && has_folded_field({static_cast<const char*>(ahead.data()), used}))
      error = beast::http::error::bad_field;
    buffer_.consume(used);
    if (!error && parser.is_header_done()) co_return true;
    if (error && error != beast::http::error::need_more) {
      exchange.set_correlation_id(correlation_id_of({}));
      must_linger_ = true;
      const Refusal refusal = head_refusal(error, options.max_header_bytes);
      co_await answer_refusal(exchange, refusal, nullptr);
      co_return false;
    }
    if (error && !co_await refill(deadline, kReadBytes)) co_return false;
  }
}

Task<bool> Connection::read_body(Parser& parser, Exchange& exchange, const Admission& admission) {
  const std::size_t limit = admission.max_body_bytes;
  std::optional<Error> failure;
  if (limit == 0) {
    failure = Error{ErrorCode::TooLarge, "a request to this path has no body"};
  } else if (parser.content_length().value_or(0) > limit) {
    failure = Error{ErrorCode::TooLarge,
                    fmt::format("the request's body has {} bytes, more than the {} allowed here",
                                *parser.content_length(), limit)};
  } else if (equals_ignoring_case(view(parser.get()[beast::http::field::expect]), "100-continue") &&
             buffer_.size() == 0) {
    const Status continued = co_await exchange.send_continue();
    if (!continued.ok()) co_return false;
  }
  if (!failure) {
    const Result<bool> taken = co_await take_body(parser, limit);
    if (taken.ok()) co_return *taken;
    failure = taken.error();
  }
  must_linger_ = true;
  exchange.forbid_keep_alive();
  co_await answer_error(exchange, *failure, admission.options);
  co_return false;
}

// False: the client was too slow or is gone.
Task<Result<bool>> Connection::take_body(Parser& parser, std::size_t limit) {
  BodyShare share(shared_.body_bytes, shared_.options.max_body_bytes_total);
  std::size_t extension_bytes = 0;
  auto count_extensions = [&extension_bytes](std::uint64_t, beast::string_view text,
                                             beast::error_code& error) {
    extension_bytes += text.size();
    if (extension_bytes > kChunkExtensionBytesMax) error = beast::http::error::header_limit;
  };
  parser.on_chunk_header(count_extensions);
  parser.body_limit(limit);
  parser.eager(true);
  const Clock::time_point deadline = Clock::now() + shared_.options.body_timeout;
  while (!parser.is_done()) {
    beast::error_code error;
    if (buffer_.size() > 0) buffer_.consume(parser.put(buffer_.data(), error));
    if (error == beast::http::error::need_more) error = {};
    if (!error && !parser.is_done() && buffer_.size() > kFrameBytesMax)
      error = beast::http::error::header_limit;
    if (error) co_return body_error(error, limit);
    const Status shared = share.grow_to(parser.get().body().size());
    if (!shared.ok()) co_return shared.error();
    if (parser.is_done()) break;
    // No further than the bound: trailers that come at once are held to it, too.
    const std::size_t room = std::min(kReadBytes, kFrameBytesMax + 1 - buffer_.size());
    if (!co_await refill(deadline, room)) co_return false;
  }
  co_return true;
}

Task<void> Connection::dispatch(const Router::Route& route, const Request& request,
                                Exchange& exchange) {
  Status outcome = ok_status();
  current_ = &exchange;
  exchange.on_release([this] { return release_input(); });
  start_watching();
  // The only catch-all: whatever a handler lets escape ends this request, not the server.
  try {
    Responder responder(exchange);
    outcome = co_await route.handler(request, responder);
  } catch (...) {
    outcome = base::error_of_current_exception("while answering");
    logger().error("handler threw", {{"correlation_id", request.correlation_id},
                                     {"path", request.path},
                                     {"what", outcome.error().message}});
  }
  stop_watching();
  exchange.forget_callbacks();
  current_ = nullptr;

  if (exchange.state() == Exchange::State::Unanswered) {
    if (outcome.ok()) outcome = Error{ErrorCode::Internal, "the handler gave no answer"};
    co_await answer_error(exchange, outcome.error(), &route.options);
  } else if (exchange.state() == Exchange::State::Streaming) {
    // Without its last chunk a failed stream is recognisably incomplete.
    if (outcome.ok()) outcome = co_await exchange.end_stream();
  }
}

Task<void> Connection::answer_error(Exchange& exchange, const Error& error,
                                    const RouteOptions* route) {
  const Refusal refusal{.error = error};
  co_await answer_refusal(exchange, refusal, route);
}

Task<void> Connection::answer_refusal(Exchange& exchange, const Refusal& refusal,
                                      const RouteOptions* route) {
  const RenderError& render =
      route != nullptr && route->render_error ? route->render_error : shared_.options.render_error;
  ErrorBody body = render(refusal.error, exchange.correlation_id());
  if (refusal.status != 0) body.status = refusal.status;
  for (const auto& [name, value] : refusal.headers) body.headers.add(name, value);
  [[maybe_unused]] const Status sent =
      co_await exchange.send_error(body);  // a gone client ends the loop
}

// Closing with unread bytes would reset the connection and destroy the answer on its way: say that
// we are done, then read what still comes, within bounds.
Task<void> Connection::linger() {
  transport_.shutdown_send();
  const Clock::time_point deadline = Clock::now() + kLingerTime;
  std::size_t total = 0;
  while (total < kLingerBytes) {
    buffer_.clear();
    if (!co_await refill(deadline, kReadBytes)) co_return;
    total += buffer_.size();
  }
}

void Connection::log_request(const Request& request, const Exchange& exchange,
                             std::chrono::steady_clock::time_point since) const {
  if (!logger().is_enabled(base::LogLevel::Debug)) return;
  const std::chrono::duration<double, std::milli> elapsed = Clock::now() - since;
  logger().debug("request", {{"method", method_name(request.method)},
                             {"path", request.path},
                             {"status", exchange.status()},
                             {"elapsed_ms", elapsed.count()},
                             {"client_gone", exchange.is_gone()},
                             {"correlation_id", request.correlation_id}});
}

void Connection::start_watching() {
  ++watch_generation_;
  watch();
}

void Connection::stop_watching() {
  ++watch_generation_;
  beast::error_code ignored;
  transport_.socket().cancel(ignored);
}

std::string Connection::release_input() {
  stop_watching();
  std::string bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  buffer_.clear();
  return bytes;
}

// While a handler works, the socket is watched for the client's leaving. Bytes that come are kept
// for the next request.
void Connection::watch() {
  transport_.socket().async_wait(
      Transport::Socket::wait_read,
      [self = shared_from_this(), generation = watch_generation_](const beast::error_code& error) {
        if (!error && generation == self->watch_generation_) self->take_readable_bytes();
      });
}

void Connection::take_readable_bytes() {
  if (buffer_.size() >= kReadAheadBytes) return;
  beast::error_code error;
  buffer_.commit(transport_.read_now(buffer_.prepare(kReadBytes), error));
  if (error && error != asio::error::would_block) return current_->mark_gone();
  watch();
}

}  // namespace llorch::http
