// What every request is checked for before a handler sees it: its frame, correlation id, deadline,
// bearer token. Private to http/.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/result.h"
#include "http/message.h"

namespace llorch::http {

using SystemTime = std::chrono::system_clock::time_point;

// Why a request is refused before its body is read.
struct Refusal {
  Error error;
  int status = 0;  // instead of the one that goes with the error's code; 0: that one
  bool ends_connection = false;
  Headers headers;  // of the answer
};

struct RequestHead {
  bool is_http11 = true;
  std::string_view target;
  const Headers& headers;
};

struct HeadLimits {
  std::size_t target_bytes = 0;
  std::size_t fields = 0;
};

// Whether everybody would see the same request in these bytes: one Host, one way to find the end of
// the body (RFC 9112, 6.3), one Authorization. Where two readers could disagree, what is a body to
// one is the next request to the other, so every refusal ends the connection.
std::optional<Refusal> check_head(const RequestHead& head, const HeadLimits& limits);

// GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS; every other is Other.
Method method_of(std::string_view name);

// For a head that cannot be read to its end.
Refusal refuse_malformed(std::string message, bool is_too_large);

// The client's X-Correlation-Id where it is [A-Za-z0-9-]{1,64}, else 32 random hexadecimal digits.
std::string correlation_id_of(const Headers& headers);

// X-Deadline in epoch milliseconds. None: no deadline. Malformed: InvalidArgument. Not after now:
// DeadlineExceeded.
Result<std::optional<SystemTime>> deadline_of(const Headers& headers, SystemTime now);

// The token of "Authorization: Bearer <token>"; none: there is no such header.
std::optional<std::string_view> bearer_of(const Headers& headers);

// Whether "Authorization: Bearer <token>" carries that token; takes the same time wherever the two
// differ.
bool is_authorized(const Headers& headers, std::string_view token);

// The key that a request brought, as a log may name it: "token:<6 hex of its sha256>", or "none".
std::string name_key(const Headers& headers);

// Keeps strangers from filling a log: so many lines in each second, the rest is counted. Any
// thread.
class LineLimit {
 public:
  explicit LineLimit(int lines_per_second) : lines_per_second_(lines_per_second) {}
  // None: say nothing. Else the number of lines that were left out since the last one.
  std::optional<std::size_t> take(std::chrono::steady_clock::time_point now);

 private:
  const int lines_per_second_;
  base::Mutex mutex_;
  std::chrono::steady_clock::time_point since_ LLORCH_GUARDED_BY(mutex_);
  int lines_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::size_t left_out_ LLORCH_GUARDED_BY(mutex_) = 0;
};

}  // namespace llorch::http
