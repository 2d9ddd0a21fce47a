#include "http/exchange.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/beast/http/status.hpp>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace llorch::http {
namespace {

// The framing is ours: a handler's own copy would contradict it.
bool is_framing(std::string_view name) {
  return equals_ignoring_case(name, "content-length") ||
         equals_ignoring_case(name, "transfer-encoding") ||
         equals_ignoring_case(name, "connection");
}

// A name or value that would end its line early would let a value forge headers.
bool is_safe_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](char c) { return c > 0x20 && c < 0x7F && c != ':'; });
}

std::string safe_value(std::string_view value) {
  std::string out(value);
  std::replace_if(
      out.begin(), out.end(),
      [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F; }, ' ');
  return out;
}

bool status_has_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

std::string_view reason(int status) {
  const std::string_view text = boost::beast::http::obsolete_reason(
      boost::beast::http::int_to_status(static_cast<unsigned>(status)));
  return text == "<unknown-status>" ? "Status" : text;
}

}  // namespace

void Exchange::set_form(bool is_head_request, bool is_http11, bool keep_alive) {
  is_head_request_ = is_head_request;
  is_http11_ = is_http11;
  keep_alive_ = keep_alive;
}

std::string Exchange::format_head(const Response& response, Framing framing, std::int64_t length) {
  if (framing == Framing::UntilClose) keep_alive_ = false;
  status_ = response.status;
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S GMT}\r\n", response.status,
                  reason(response.status), fmt::gmtime(std::time(nullptr)));
  const auto append = std::back_inserter(out);
  if (!correlation_id_.empty()) fmt::format_to(append, "X-Correlation-Id: {}\r\n", correlation_id_);
  for (const auto& [name, value] : common_headers_)
    fmt::format_to(append, "{}: {}\r\n", name, safe_value(value));
  for (const auto& [name, value] : response.headers) {
    if (is_framing(name) || !is_safe_name(name)) continue;
    if (equals_ignoring_case(name, "x-correlation-id")) continue;
    fmt::format_to(append, "{}: {}\r\n", name, safe_value(value));
  }
  if (framing == Framing::Length && status_has_body(response.status)) {
    fmt::format_to(append, "Content-Length: {}\r\n", length);
  }
  if (framing == Framing::Chunked) out += "Transfer-Encoding: chunked\r\n";
  if (response.status == 101) keep_alive_ = false;  // what follows is no HTTP
  const std::string_view connection = response.status == 101 ? "Upgrade"
                                      : keep_alive_          ? "keep-alive"
                                                             : "close";
  fmt::format_to(append, "Connection: {}\r\n\r\n", connection);
  return out;
}

Task<Status> Exchange::write_parts(std::string_view head, std::string_view body) {
  const auto deadline = std::chrono::steady_clock::now() + write_timeout_;
  const Transport::ErrorCode error = co_await transport_.write(head, body, deadline);
  if (!error) co_return ok_status();
  state_ = State::Broken;
  mark_gone();
  co_return Error{ErrorCode::Cancelled,
                  is_timeout(error)
                      ? fmt::format("the client did not read for {} ms", write_timeout_.count())
                      : fmt::format("the client is gone: {}", error.message())};
}

Task<Status> Exchange::send(Response response) {
  CHECK(state_ == State::Unanswered, "a handler answered twice");
  state_ = State::Answered;
  const std::string head =
      format_head(response, Framing::Length, static_cast<std::int64_t>(response.body.size()));
  const bool has_body = !is_head_request_ && status_has_body(response.status);
  const std::string_view body = has_body ? std::string_view(response.body) : std::string_view();
  co_return co_await write_parts(head, body);
}

Task<Status> Exchange::send_error(const ErrorBody& body) {
  Response response;
  response.status = body.status;
  response.headers = body.headers;
  response.body = body.body;
  response.headers.set("Content-Type", body.content_type);
  co_return co_await send(std::move(response));
}

Task<Status> Exchange::send_continue() {
  co_return co_await write_parts("HTTP/1.1 100 Continue\r\n\r\n", {});
}

Task<Status> Exchange::open_stream(Response head, std::optional<std::int64_t> length) {
  CHECK(state_ == State::Unanswered, "a handler answered twice");
  CHECK(status_has_body(head.status), "a stream needs a status that has a body");
  bytes_left_ = length;
  is_chunked_ = is_http11_ && !length;
  state_ = is_head_request_ ? State::Answered : State::Streaming;
  head.headers.set("Cache-Control", "no-cache");
  const Framing framing = length        ? Framing::Length
                          : is_chunked_ ? Framing::Chunked
                                        : Framing::UntilClose;
  std::string text = format_head(head, framing, length.value_or(0));
  if (!is_head_request_ && !transport_.is_tls()) {
    hold_head(std::move(text));
    co_return ok_status();
  }
  Status written = co_await write_parts(text, {});
  if (!written.ok() || !is_head_request_) co_return written;
  co_return Error{ErrorCode::Cancelled, "the answer to a HEAD request ends with its head"};
}

// The first bytes of an answer are often there when its head is: one packet then wakes the reader
// once. What is posted runs when the handler waits, if it has written nothing by then.
void Exchange::hold_head(std::string head) {
  held_head_ = std::make_shared<std::string>(std::move(head));
  boost::asio::post(transport_.socket().get_executor(),
                    [this, held = std::weak_ptr<std::string>(held_head_)] {
                      if (!held.expired()) flush_head();
                    });
}

std::string Exchange::take_head() {
  if (!held_head_) return {};
  const std::shared_ptr<std::string> head = std::exchange(held_head_, nullptr);
  return std::move(*head);
}

void Exchange::flush_head() {
  if (!held_head_) return;
  const ssize_t sent = ::send(transport_.socket().native_handle(), held_head_->data(),
                              held_head_->size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return;  // the next write says why, or brings it
  held_head_->erase(0, static_cast<std::size_t>(sent));
  if (held_head_->empty()) held_head_.reset();
}

Task<Status> Exchange::write(std::string_view bytes) {
  if (state_ != State::Streaming) co_return Error{ErrorCode::Cancelled, "the client is gone"};
  if (bytes.empty()) co_return ok_status();  // an empty chunk would end the stream
  if (bytes_left_) {
    *bytes_left_ -= static_cast<std::int64_t>(bytes.size());
    CHECK(*bytes_left_ >= 0, "a stream got more bytes than its length");
  }
  const std::string head = take_head();
  if (!is_chunked_) co_return co_await write_parts(head, bytes);
  std::string chunk;
  chunk.reserve(bytes.size() + 24);
  fmt::format_to(std::back_inserter(chunk), "{:x}\r\n", bytes.size());
  chunk += bytes;
  chunk += "\r\n";
  co_return co_await write_parts(head, chunk);
}

Task<Status> Exchange::end_stream() {
  if (state_ != State::Streaming) co_return ok_status();
  // The state stays: the connection closes, and the client sees that it has less than was promised.
  if (bytes_left_.value_or(0) != 0)
    co_return Error{ErrorCode::Internal,
                    fmt::format("a stream ended {} bytes before its length", *bytes_left_)};
  state_ = State::Answered;
  const std::string head = take_head();
  if (!is_chunked_ && head.empty()) co_return ok_status();
  co_return co_await write_parts(head, is_chunked_ ? "0\r\n\r\n" : "");
}

void Exchange::mark_gone() {
  if (std::exchange(gone_, true)) return;
  for (const std::function<void()>& callback : std::exchange(on_gone_, {})) callback();
}

void Exchange::on_gone(std::function<void()> callback) {
  if (gone_) return callback();
  on_gone_.push_back(std::move(callback));
}

}  // namespace llorch::http
