#include "http/guard.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

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

// No early exit and no branch on the content, so that the time taken tells nothing about the token.
bool equal_in_constant_time(std::string_view given, std::string_view expected) {
  volatile unsigned difference = given.size() == expected.size() ? 0u : 1u;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = expected[i % expected.size()];
    difference =
        difference | (static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(other));
  }
  return difference == 0;
}

}  // namespace

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

bool is_authorized(const Headers& headers, std::string_view token) {
  constexpr std::string_view kScheme = "Bearer ";
  const auto given = headers.find("Authorization");
  if (token.empty() || !given || !equals_ignoring_case(given->substr(0, kScheme.size()), kScheme)) {
    return false;
  }
  return equal_in_constant_time(given->substr(kScheme.size()), token);
}

}  // namespace llorch::http
