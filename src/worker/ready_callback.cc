#include "worker/ready_callback.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "http/client.h"
#include "http/url.h"

namespace llorch::worker {
namespace {

const base::Logger& logger() {
  static const base::Logger instance("worker");
  return instance;
}

Status try_once(http::Client& client, const http::ClientRequest& request) {
  const Result<http::Response> response = client.send(request);
  if (!response.ok()) return response.error();
  if (response->status / 100 == 2) return ok_status();
  return Error{ErrorCode::Unavailable, fmt::format("the answer was status {}", response->status)};
}

}  // namespace

bool is_test_callback(std::string_view url) {
  const Result<http::Url> parsed = http::parse_url(url);
  return parsed.ok() && parsed->host == "localhost" && parsed->port == 9999;
}

Status send_ready_callback(const std::string& url, const contract::ReadyCallback& callback,
                           const std::string& mark, const CallbackTiming& timing,
                           const std::stop_token& stop, const base::Clock& clock) {
  http::ClientRequest request(http::Method::Post, url);
  if (!mark.empty()) request.headers.set(contract::kWorkerMarkHeader, mark);
  request.body = json::serialize(contract::to_json(callback));
  request.connect_timeout = timing.connect;
  request.total_timeout = timing.total;
  const base::Clock::TimePoint deadline = clock.now() + timing.give_up;
  http::Client client;
  std::chrono::milliseconds pause = timing.first_pause;
  while (!stop.stop_requested()) {
    const Status sent = try_once(client, request);
    if (sent.ok()) return ok_status();
    if (clock.now() + pause >= deadline) {
      return Error{ErrorCode::Unavailable,
                   fmt::format("the ready callback to {} failed for {} s: {}", url,
                               timing.give_up.count() / 1000, sent.error().message)};
    }
    logger().warn("ready callback failed, trying again", {{"reason", sent.error().message}});
    if (!clock.sleep_for(pause, stop)) break;
    pause = std::min(pause * 2, timing.longest_pause);
  }
  return Error{ErrorCode::Cancelled, "the ready callback was given up"};
}

}  // namespace llorch::worker
