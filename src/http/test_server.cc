#include "http/test_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "base/mutex.h"

namespace llorch::http::test {
namespace {

constexpr int kPatienceSeconds = 10;

int status_for(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
      return 400;
    case ErrorCode::Unauthorized:
      return 401;
    case ErrorCode::Forbidden:
      return 403;
    case ErrorCode::NotFound:
      return 404;
    case ErrorCode::MethodNotAllowed:
      return 405;
    case ErrorCode::TooLarge:
      return 413;
    case ErrorCode::UnsupportedMedia:
      return 415;
    case ErrorCode::OutOfMemory:
      return 507;
    case ErrorCode::Unavailable:
      return 503;
    case ErrorCode::DeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

}  // namespace

ErrorBody render_plainly(const Error& error, std::string_view correlation_id) {
  return {.status = status_for(error.code),
          .content_type = "text/plain",
          .body = fmt::format("{}: {}", correlation_id, error.message),
          .headers = {}};
}

ServerOptions plain_options() {
  ServerOptions options;
  options.render_error = render_plainly;
  options.more_hosts = {"test", "t"};
  return options;
}

std::unique_ptr<Server> start(Router router, ServerOptions options) {
  auto server = Server::start(std::move(router), std::move(options));
  CHECK(server.ok(), server.error().message);
  return server.take();
}

RawSocket::RawSocket(std::uint16_t port, int receive_buffer_bytes)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes > 0) {
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  const timeval patience{.tv_sec = kPatienceSeconds, .tv_usec = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) close();
}

RawSocket::~RawSocket() {
  close();
}

bool RawSocket::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string RawSocket::read_once() {
  if (buffer_.empty()) fill();
  return std::exchange(buffer_, {});
}

bool RawSocket::fill() {
  char chunk[16 * 1024];
  const ssize_t got = ::recv(fd_, chunk, sizeof(chunk), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    ADD_FAILURE() << "nothing came for " << kPatienceSeconds << " s; have: " << buffer_;
  }
  if (got <= 0) return false;
  buffer_.append(chunk, static_cast<std::size_t>(got));
  return true;
}

std::string RawSocket::read_until(std::string_view mark) {
  while (true) {
    const std::size_t at = buffer_.find(mark);
    if (at != std::string::npos) {
      std::string out = buffer_.substr(0, at + mark.size());
      buffer_.erase(0, at + mark.size());
      return out;
    }
    if (!fill()) return std::exchange(buffer_, {});
  }
}

std::string RawSocket::read_response() {
  std::string out = read_until("\r\n\r\n");
  const std::string length_text = header_of(out, "content-length");
  const std::size_t length = length_text.empty() ? 0 : std::stoul(length_text);
  while (buffer_.size() < length && fill()) {
  }
  const std::size_t have = std::min(length, buffer_.size());
  out += buffer_.substr(0, have);
  buffer_.erase(0, have);
  return out;
}

std::string RawSocket::read_all() {
  while (fill()) {
  }
  return std::exchange(buffer_, {});
}

bool RawSocket::is_closed_by_peer() {
  return buffer_.empty() && !fill();
}

void RawSocket::shutdown_send() {
  ::shutdown(fd_, SHUT_WR);
}

void RawSocket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

void RawSocket::reset() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close();
}

std::string get(std::string_view path, std::string_view headers) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: test\r\n{}\r\n", path, headers);
}

std::string post(std::string_view path, std::string_view body, std::string_view headers,
                 std::string_view host) {
  const bool has_type = headers.find("Content-Type:") != std::string_view::npos;
  return fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n{}{}\r\n{}", path, host,
                     body.size(), has_type ? "" : "Content-Type: application/json\r\n", headers,
                     body);
}

std::string body_of(std::string_view response) {
  const std::size_t end = response.find("\r\n\r\n");
  return end == std::string_view::npos ? "" : std::string(response.substr(end + 4));
}

int status_of(std::string_view response) {
  if (!response.starts_with("HTTP/1.1 ") || response.size() < 12) return 0;
  return std::atoi(std::string(response.substr(9, 3)).c_str());
}

std::string header_of(std::string_view response, std::string_view name) {
  while (!response.empty()) {
    const std::size_t end = response.find("\r\n");
    const std::string_view line = response.substr(0, end);
    if (line.empty() || end == std::string_view::npos) break;
    const std::size_t colon = line.find(": ");
    if (colon != std::string_view::npos && equals_ignoring_case(line.substr(0, colon), name)) {
      return std::string(line.substr(colon + 2));
    }
    response.remove_prefix(end + 2);
  }
  return {};
}

Router echo_router() {
  Router router;
  router.add(Method::Get, "/health", [](const Request&) -> Result<Response> {
    return Response(200, "text/plain", "fine");
  });
  router.add(Method::Post, "/echo", [](const Request& request) -> Result<Response> {
    return Response(200, "text/plain", request.body);
  });
  return router;
}

json::Value parse(std::string_view text) {
  Result<json::Value> value = json::parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? value.take() : json::Value();
}

json::Value json_of(std::string_view response) {
  return parse(body_of(response));
}

std::string dechunk(std::string_view response) {
  std::string out;
  const std::string body = body_of(response);
  std::string_view rest = body;
  while (!rest.empty()) {
    std::size_t size = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), size, 16);
    if (error != std::errc() || size == 0) break;
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()) + 2);
    out += rest.substr(0, size);
    rest.remove_prefix(std::min(rest.size(), size + 2));
  }
  return out;
}

std::vector<SseEvent> events_of(std::string_view response) {
  SseReader reader;
  std::vector<SseEvent> events;
  EXPECT_TRUE(reader.feed(dechunk(response), events).ok());
  return events;
}

std::vector<std::string> data_of(std::string_view response) {
  std::vector<std::string> data;
  for (SseEvent& event : events_of(response)) data.push_back(std::move(event.data));
  return data;
}

std::size_t resident_bytes() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmRSS:")) return std::stoul(line.substr(6)) * 1024;
  }
  return 0;
}

void Gate::open() {
  const base::MutexLock lock(mutex_);
  open_ = true;
  changed_.notify_all();
}

bool Gate::wait() {
  const base::MutexLock lock(mutex_);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
  while (!open_ && changed_.wait_until(mutex_, deadline)) {
  }
  return open_;
}

}  // namespace llorch::http::test
