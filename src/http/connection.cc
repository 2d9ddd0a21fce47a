#include "http/connection.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/job_border.h"
#include "base/log.h"
#include "http/guard.h"
#include "http/url.h"

namespace llorch::http {

namespace asio = boost::asio;
namespace beast = boost::beast;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kReadBytes = 16 * 1024;
// What a client may send ahead while its last request is still being answered; past that we only
// notice its disconnect when we write.
constexpr std::size_t kReadAheadBytes = 64 * 1024;
constexpr std::chrono::milliseconds kLingerTime{1000};
constexpr std::size_t kLingerBytes = std::size_t{4} << 20;

const base::Logger& logger() {
  static const base::Logger instance("http");
  return instance;
}

Method method_of(beast::http::verb verb) {
  switch (verb) {
    case beast::http::verb::get:
      return Method::Get;
    case beast::http::verb::head:
      return Method::Head;
    case beast::http::verb::post:
      return Method::Post;
    case beast::http::verb::put:
      return Method::Put;
    case beast::http::verb::patch:
      return Method::Patch;
    case beast::http::verb::delete_:
      return Method::Delete;
    case beast::http::verb::options:
      return Method::Options;
    default:
      return Method::Other;
  }
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

Error parse_error(const beast::error_code& error) {
  if (error == beast::http::error::header_limit) {
    return {ErrorCode::TooLarge, "the request's head is larger than this server allows"};
  }
  return {ErrorCode::InvalidArgument, fmt::format("malformed HTTP request: {}", error.message())};
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, const ConnectionShared& shared)
    : shared_(shared), transport_(std::move(socket)) {
  beast::error_code error;
  transport_.socket().non_blocking(true, error);  // for take_readable_bytes()
  const auto peer = transport_.socket().remote_endpoint(error);
  from_loopback_ = !error && peer.address().is_loopback();
}

Task<void> Connection::run() {
  bool is_open = true;  // a co_await in the condition of an empty loop is miscompiled by gcc 12
  while (is_open) is_open = co_await serve_one();
  if (must_linger_ || buffer_.size() > 0) co_await linger();
  transport_.close();
}

Task<void> Connection::refuse() {
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

void Connection::abort() {
  aborted_ = true;
  transport_.close();
  if (current_ != nullptr) current_->mark_gone();
}

Task<bool> Connection::serve_one() {
  idle_ = buffer_.size() == 0;
  if (aborted_ || (idle_ && shared_.draining)) co_return false;
  auto parser = std::make_unique<Parser>();
  Exchange exchange(transport_, shared_.options.write_timeout);
  if (!co_await read_head(*parser, exchange)) co_return false;

  const Clock::time_point since = Clock::now();
  Request request;
  request.from_loopback = from_loopback_;
  request.headers = copy_headers(parser->get());
  request.method = method_of(parser->get().method());
  request.correlation_id = correlation_id_of(request.headers);
  exchange.set_correlation_id(request.correlation_id);
  exchange.set_form(request.method == Method::Head, parser->get().version() >= 11,
                    parser->keep_alive());

  const Admission admission = admit(*parser, request);
  if (admission.error) {
    if (expects_body(*parser)) must_linger_ = true;  // we will not read it
    if (must_linger_) exchange.forbid_keep_alive();
    co_await answer_error(exchange, *admission.error, admission.options, admission.headers);
    log_request(request, exchange, since);
    co_return exchange.keeps_alive();
  }
  if (expects_body(*parser)) {
    if (!co_await read_body(*parser, exchange, admission.route->options)) co_return false;
    request.body = std::move(parser->get().body());
  }
  parser.reset();
  buffer_.shrink_to_fit();  // a stream may now stay for hours
  if (shared_.draining) exchange.forbid_keep_alive();
  co_await dispatch(*admission.route, request, exchange);
  log_request(request, exchange, since);
  co_return exchange.keeps_alive() && !exchange.is_gone();
}

Task<bool> Connection::refill(Transport::TimePoint deadline) {
  const auto [error, size] = co_await transport_.read_some(buffer_.prepare(kReadBytes), deadline);
  buffer_.commit(size);
  co_return !error && !aborted_;
}

Task<bool> Connection::read_head(Parser& parser, Exchange& exchange) {
  const ServerOptions& options = shared_.options;
  parser.header_limit(static_cast<std::uint32_t>(options.max_header_bytes));
  parser.body_limit(boost::none);  // decided by the route
  if (idle_ && !co_await refill(Clock::now() + options.idle_timeout)) co_return false;
  idle_ = false;
  const Clock::time_point deadline = Clock::now() + options.header_timeout;
  while (true) {
    beast::error_code error;
    buffer_.consume(parser.put(buffer_.data(), error));
    if (!error && parser.is_header_done()) co_return true;
    if (error && error != beast::http::error::need_more) {
      exchange.set_correlation_id(correlation_id_of({}));
      must_linger_ = true;
      const Error failure = parse_error(error);
      co_await answer_error(exchange, failure);
      co_return false;
    }
    if (error && !co_await refill(deadline)) co_return false;
  }
}

Task<bool> Connection::read_body(Parser& parser, Exchange& exchange, const RouteOptions& route) {
  const ServerOptions& options = shared_.options;
  const std::size_t limit = route.max_body_bytes.value_or(options.max_body_bytes);
  std::optional<Error> failure;
  if (parser.content_length().value_or(0) > limit) {
    failure = Error{ErrorCode::TooLarge,
                    fmt::format("the request's body has {} bytes, more than the {} allowed here",
                                *parser.content_length(), limit)};
  } else if (equals_ignoring_case(view(parser.get()[beast::http::field::expect]), "100-continue") &&
             buffer_.size() == 0) {
    const Status continued = co_await exchange.send_continue();
    if (!continued.ok()) co_return false;
  }
  parser.body_limit(limit);
  parser.eager(true);
  const Clock::time_point deadline = Clock::now() + options.body_timeout;
  while (!failure && !parser.is_done()) {
    beast::error_code error;
    if (buffer_.size() > 0) buffer_.consume(parser.put(buffer_.data(), error));
    if (error == beast::http::error::body_limit) {
      failure =
          Error{ErrorCode::TooLarge,
                fmt::format("the request's body has more than the {} bytes allowed here", limit)};
    } else if (error && error != beast::http::error::need_more) {
      failure = parse_error(error);
    } else if (!parser.is_done() && !co_await refill(deadline)) {
      co_return false;
    }
  }
  if (!failure) co_return true;
  must_linger_ = true;
  exchange.forbid_keep_alive();
  co_await answer_error(exchange, *failure, &route);
  co_return false;
}

Status Connection::check_head(const Parser& parser) const {
  const ServerOptions& options = shared_.options;
  const auto& head = parser.get();
  if (head.target().size() > options.max_target_bytes) {
    return Error{ErrorCode::TooLarge,
                 fmt::format("the request target has {} bytes, more than the {} allowed",
                             head.target().size(), options.max_target_bytes)};
  }
  const auto fields = static_cast<std::size_t>(std::distance(head.begin(), head.end()));
  if (fields > options.max_header_fields) {
    return Error{ErrorCode::TooLarge,
                 fmt::format("the request has {} header fields, more than the {} allowed", fields,
                             options.max_header_fields)};
  }
  if (head.version() >= 11 && head.count(beast::http::field::host) != 1) {
    return Error{ErrorCode::InvalidArgument, "an HTTP/1.1 request needs exactly one Host header"};
  }
  // Anything but plain "chunked" leaves the end of the body to interpretation, which is how
  // requests get smuggled.
  const auto encoding = head.find(beast::http::field::transfer_encoding);
  if (encoding != head.end() && (!equals_ignoring_case(view(encoding->value()), "chunked") ||
                                 head.count(beast::http::field::transfer_encoding) != 1)) {
    return Error{ErrorCode::InvalidArgument,
                 "the only Transfer-Encoding understood here is 'chunked'"};
  }
  return ok_status();
}

Connection::Admission Connection::admit(const Parser& parser, Request& request) const {
  const ServerOptions& options = shared_.options;
  const auto refuse_with = [](Error error, const RouteOptions* said_as = nullptr,
                              Headers headers = {}) {
    return Admission{nullptr, std::move(error), said_as, std::move(headers)};
  };
  if (const Status checked = check_head(parser); !checked.ok()) return refuse_with(checked.error());
  Result<Target> target = parse_target(view(parser.get().target()));
  if (!target.ok()) return refuse_with(target.error());
  request.path = std::move(target->path);
  request.query = std::move(target->query);
  Router::Match match = shared_.router.find(request.method, target->segments);
  request.path_params = std::move(match.params);

  Headers headers;
  const auto& open_paths = options.paths_without_auth;
  const bool needs_token = !shared_.open_to_all && std::find(open_paths.begin(), open_paths.end(),
                                                             request.path) == open_paths.end();
  if (needs_token && !is_authorized(request.headers, options.bearer_token)) {
    headers.add("WWW-Authenticate", "Bearer");
    return refuse_with({ErrorCode::Unauthorized,
                        "this server wants a bearer token: send 'Authorization: Bearer TOKEN'"},
                       match.options, std::move(headers));
  }
  if (match.route == nullptr && match.allow.empty()) {
    return refuse_with({ErrorCode::NotFound, fmt::format("nothing is served at {}", request.path)},
                       match.options);
  }
  if (match.route == nullptr) {
    headers.add("Allow", match.allow);
    return refuse_with(
        {ErrorCode::MethodNotAllowed, fmt::format("{} allows only {}", request.path, match.allow)},
        match.options, std::move(headers));
  }
  auto deadline = deadline_of(request.headers, std::chrono::system_clock::now());
  if (!deadline.ok()) return refuse_with(deadline.error(), match.options);
  request.deadline = *deadline;
  return {match.route, {}, match.options, {}};
}

Task<void> Connection::dispatch(const Router::Route& route, const Request& request,
                                Exchange& exchange) {
  Status outcome = ok_status();
  current_ = &exchange;
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
                                    const RouteOptions* route, const Headers& headers) {
  const RenderError& render =
      route != nullptr && route->render_error ? route->render_error : shared_.options.render_error;
  ErrorBody body = render(error, exchange.correlation_id());
  for (const auto& [name, value] : headers) body.headers.add(name, value);
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
    if (!co_await refill(deadline)) co_return;
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

// While a handler works, the socket is watched for the client's leaving. Bytes that come are kept
// for the next request.
void Connection::watch() {
  transport_.socket().async_wait(
      asio::ip::tcp::socket::wait_read,
      [self = shared_from_this(), generation = watch_generation_](const beast::error_code& error) {
        if (!error && generation == self->watch_generation_) self->take_readable_bytes();
      });
}

void Connection::take_readable_bytes() {
  if (buffer_.size() >= kReadAheadBytes) return;
  beast::error_code error;
  buffer_.commit(transport_.socket().read_some(buffer_.prepare(kReadBytes), error));
  if (error && error != asio::error::would_block) return current_->mark_gone();
  watch();
}

}  // namespace llorch::http
