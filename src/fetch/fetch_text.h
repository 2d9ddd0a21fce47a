// One small answer, whole in memory. Private to fetch/.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "fetch/http_fetch.h"
#include "fetch/retry.h"

namespace llorch::fetch {

// Called about once a second while a server's answer is overdue: who, and for how long so far.
using OnWait = std::function<void(const std::string& host, std::chrono::milliseconds waited)>;

struct TextAnswer {
  FetchHead head;
  std::string body;  // of any status
};

// One small answer in memory, tried again while the failure may pass. Answers of 4xx that will not
// pass are returned for the caller to explain. TooLarge above max_bytes; Unavailable with the last
// failure; Cancelled. `deadline` bounds each attempt.
struct TextRequest {
  FetchRequest request;
  std::size_t max_bytes = 0;
  bool head_only = false;  // the body is not wanted
  std::chrono::milliseconds deadline{60'000};
  OnWait on_wait{};
  std::chrono::milliseconds wait_shown = kWaitShown;
};
Result<TextAnswer> fetch_text(const TextRequest& request, const FetchOptions& options,
                              const RetryPolicy& retry, std::stop_token stop);

}  // namespace llorch::fetch
