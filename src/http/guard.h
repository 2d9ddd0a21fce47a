// What every request is checked for before a handler sees it: correlation id, deadline, bearer
// token. Private to http/.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/message.h"

namespace llorch::http {

using SystemTime = std::chrono::system_clock::time_point;

// The client's X-Correlation-Id where it is [A-Za-z0-9-]{1,64}, else 32 random hexadecimal digits.
std::string correlation_id_of(const Headers& headers);

// X-Deadline in epoch milliseconds. None: no deadline. Malformed: InvalidArgument. Not after now:
// DeadlineExceeded.
Result<std::optional<SystemTime>> deadline_of(const Headers& headers, SystemTime now);

// Whether "Authorization: Bearer <token>" carries that token; takes the same time wherever the two
// differ.
bool is_authorized(const Headers& headers, std::string_view token);

}  // namespace llorch::http
