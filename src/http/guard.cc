#include "http/guard.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <utility>

#include "base/digest.h"
#include "base/mutex.h"
#include "http/url.h"

namespace llorch::http {
namespace {

constexpr std::size_t kMaxCorrelationId = 64;

bool is_correlation_id(std::string_view text) {
  return !text.empty() && text.size() <= kMaxCorrelationId &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-';
         });
}

std::string random_id() {
  std::array<std::uint64_t, 2> words{};
  // 16 bytes never come short once the kernel's generator is up, and ids need not be secret.
  [[maybe_unused]] const ssize_t got = ::getrandom(words.data(), sizeof(words), 0);
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

constexpr std::string_view kBearer = "Bearer ";
constexpr int kHeadTooLarge = 431;
constexpr int kTargetTooLong = 414;

Refusal refuse_head(std::string message, int status = 0) {
  return {{ErrorCode::InvalidArgument, std::move(message)}, status, true, {}};
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<Refusal> check_framing(const RequestHead& head) {
  const auto encoding = head.headers.find("Transfer-Encoding");
  const auto length = head.headers.find("Content-Length");
  if (encoding && !head.is_http11)
    return refuse_head("an HTTP/1.0 request has no Transfer-Encoding; send a Content-Length");
  if (encoding && length)
    return refuse_head("a request has either a Transfer-Encoding or a Content-Length, not both");
  if (encoding &&
      (head.headers.count("Transfer-Encoding") != 1 || !equals_ignoring_case(*encoding, "chunked")))
    return refuse_head("the only Transfer-Encoding understood here is 'chunked'");
  if (length && (head.headers.count("Content-Length") != 1 || !is_number(*length)))
    return refuse_head("a request has one Content-Length, which is one number");
  return std::nullopt;
}

// A proxy goes by the host in an absolute target, a server by its Host header: one host, then.
Status check_authority(const RequestHead& head) {
  const std::optional<std::string_view> authority = authority_of(head.target);
  const std::optional<std::string_view> host = head.headers.find("Host");
  if (!authority || (host && equals_ignoring_case(*authority, *host))) return ok_status();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("the request target names the host '{}', the Host header '{}'",
                           *authority, host.value_or(""))};
}

}  // namespace

std::optional<Refusal> check_head(const RequestHead& head, const HeadLimits& limits) {
  if (head.target.size() > limits.target_bytes) {
    return refuse_head(fmt::format("the request target has {} bytes, more than the {} allowed",
                                   head.target.size(), limits.target_bytes),
                       kTargetTooLong);
  }
  if (head.headers.size() > limits.fields) {
    return refuse_head(fmt::format("the request has {} header fields, more than the {} allowed",
                                   head.headers.size(), limits.fields),
                       kHeadTooLarge);
  }
  const std::size_t hosts = head.headers.count("Host");
  if (hosts > 1 || (hosts == 0 && head.is_http11))
    return refuse_head("an HTTP/1.1 request needs exactly one Host header");
  if (Status named = check_authority(head); !named.ok()) return refuse_head(named.error().message);
  if (head.headers.count("Authorization") > 1)
    return refuse_head("the request has more than one Authorization header; send one");
  return check_framing(head);
}

Refusal refuse_malformed(std::string message, bool is_too_large) {
  return refuse_head(std::move(message), is_too_large ? kHeadTooLarge : 0);
}

Method method_of(std::string_view name) {
  for (const Method method : {Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch,
                              Method::Delete, Method::Options}) {
    if (method_name(method) == name) return method;
  }
  return Method::Other;
}

std::string correlation_id_of(const Headers& headers) {
  const auto given = headers.find("X-Correlation-Id");
  return given && is_correlation_id(*given) ? std::string(*given) : random_id();
}

Result<std::optional<SystemTime>> deadline_of(const Headers& headers, SystemTime now) {
  const auto text = headers.find("X-Deadline");
  if (!text) return std::optional<SystemTime>();
  // The clock counts nanoseconds in 64 bits and ends in the year 2262; this is in 2255.
  constexpr std::uint64_t kMaxMilliseconds = 9'000'000'000'000;
  std::uint64_t milliseconds = 0;
  const auto [end, error] =
      std::from_chars(text->data(), text->data() + text->size(), milliseconds);
  if (error != std::errc() || end != text->data() + text->size() ||
      milliseconds > kMaxMilliseconds) {
    return Error{ErrorCode::InvalidArgument,
                 "the X-Deadline header is not a number of milliseconds since 1970"};
  }
  const SystemTime deadline{std::chrono::milliseconds(milliseconds)};
  if (deadline <= now) {
    const auto late = std::chrono::duration_cast<std::chrono::milliseconds>(now - deadline);
    return Error{
        ErrorCode::DeadlineExceeded,
        fmt::format("the request's X-Deadline passed {} ms before it arrived", late.count())};
  }
  return std::optional<SystemTime>(deadline);
}

std::optional<std::string_view> bearer_of(const Headers& headers) {
  const auto given = headers.find("Authorization");
  if (!given || !equals_ignoring_case(given->substr(0, kBearer.size()), kBearer))
    return std::nullopt;
  return given->substr(kBearer.size());
}

bool is_authorized(const Headers& headers, std::string_view token) {
  const auto given = bearer_of(headers);
  return given && base::is_same_secret(*given, token);
}

std::string name_key(const Headers& headers) {
  constexpr std::size_t kShownDigits = 6;
  auto given = headers.find("Authorization");
  if (!given) return "none";
  if (equals_ignoring_case(given->substr(0, kBearer.size()), kBearer))
    given->remove_prefix(kBearer.size());
  return "token:" + base::sha256_hex(*given).substr(0, kShownDigits);
}

std::optional<std::size_t> LineLimit::take(std::chrono::steady_clock::time_point now) {
  const base::MutexLock lock(mutex_);
  if (now - since_ >= std::chrono::seconds(1)) {
    since_ = now;
    lines_ = 0;
  }
  if (lines_ >= lines_per_second_) {
    ++left_out_;
    return std::nullopt;
  }
  ++lines_;
  return std::exchange(left_out_, 0);
}

}  // namespace llorch::http
