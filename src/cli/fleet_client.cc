#include "cli/fleet_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/local_ca.h"
#include "api/start_daemon.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/own_program.h"
#include "cli/find_pool.h"
#include "http/url.h"

namespace llorch::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{2'000};
constexpr std::size_t kKeyBytesMax = 1024;
constexpr milliseconds kHealthPatience{2'000};

}  // namespace

bool may_return(const Error& error) {
  return error.code == ErrorCode::Unavailable || error.code == ErrorCode::DeadlineExceeded;
}

Error answer_error(const std::vector<json::FieldError>& errors) {
  return {ErrorCode::Internal,
          fmt::format("the orchestrator's answer is not understood: {} {}; is it of another "
                      "version?",
                      errors.front().field, errors.front().message)};
}

FleetClient::FleetClient(const FleetTarget& target, std::string url)
    : url_(url),
      calls_({.url = std::move(url),
              .token = target.token,
              .token_advice = "set LLORCH_TOKEN to a key that `llorch keys add` made",
              .who = "the orchestrator",
              .ca_file = target.ca_file,
              .more_ca_file = api::ca_file(target.home).string()}) {}

FleetClient::FleetClient(const FleetTarget& target, const api::DaemonAddress& address)
    : FleetClient(target, address.local_url) {
  url_ = address.url;
  home_target_ = target;
}

std::optional<FleetClient> FleetClient::find_again() const {
  if (!home_target_) return std::nullopt;
  const auto address = read_orchestrator_address(home_target_->home);
  if (!address || address->local_url == calls_.url()) return std::nullopt;
  return FleetClient(*home_target_, *address);
}

Status FleetClient::follow(std::string_view job, std::string after,
                           const std::function<bool(const http::SseEvent& event)>& on_event,
                           const std::function<void(const Error& why)>& on_pause,
                           std::stop_token stop) const {
  const std::string path = fmt::format("/v2/tasks/{}/events", http::percent_encode(job));
  Clock::time_point heard = Clock::now();
  milliseconds pause = kFirstPause;
  std::optional<FleetClient> moved;
  for (;;) {
    if (std::optional<FleetClient> found = (moved ? *moved : *this).find_again())
      moved.emplace(std::move(*found));
    http::Headers headers;
    if (!after.empty()) headers.set("Last-Event-ID", after);
    bool is_over = false;
    Status read = (moved ? moved->calls_ : calls_)
                      .read_events(
                          path,
                          [&](const http::SseEvent& event) {
                            if (!event.id.empty()) after = event.id;
                            heard = Clock::now();
                            pause = kFirstPause;
                            is_over = !on_event(event);
                            return !is_over;
                          },
                          {.total = milliseconds(0), .stop = stop}, headers);
    if (is_over) return ok_status();
    if (stop.stop_requested()) return Error{ErrorCode::Cancelled, "interrupted"};
    if (read.ok())
      read = Error{ErrorCode::Unavailable, "the stream of events broke off before its end"};
    if (!may_return(read.error()) || Clock::now() - heard > kReturnPatience) return read;
    on_pause(read.error());
    if (!base::real_clock().sleep_for(pause, stop))
      return Error{ErrorCode::Cancelled, "interrupted"};
    pause = std::min(pause * 2, kLongestPause);
  }
}

std::filesystem::path orchestrator_address_file(const base::Home& home) {
  return home.state / "orchestrator.json";
}

std::optional<api::DaemonAddress> read_orchestrator_address(const base::Home& home) {
  return api::read_daemon_address(orchestrator_address_file(home));
}

Result<FleetClient> find_orchestrator(const FleetTarget& target) {
  if (!target.url.empty()) {
    if (const Result<http::Url> url = http::parse_url(target.url); !url.ok())
      return url.error().in("--orchestrator");
    FleetClient client(target, target.url);
    const auto health = client.calls().get("/health", {.total = kHealthPatience});
    if (!health.ok()) {
      return Error{health.error().code, fmt::format("no orchestrator answers at {}: {}", target.url,
                                                    health.error().message)};
    }
    return client;
  }
  if (const auto address = read_orchestrator_address(target.home))
    return FleetClient(target, *address);
  return Error{ErrorCode::NotFound, "no orchestrator is running; `llorch up` starts one"};
}

Result<FoundOrchestrator> find_or_start_orchestrator(const FleetTarget& target) {
  Result<FleetClient> found = find_orchestrator(target);
  if (found.ok()) return FoundOrchestrator{found.take(), false};
  if (!target.url.empty()) return found.error();
  if (Status made = base::make_private_folder(target.home.state); !made.ok()) return made.error();
  const auto lock = base::FileLock::acquire(target.home.state / "orchestrator.start.lock",
                                            api::kDaemonStartPatience);
  if (!lock.ok()) return lock.error();
  found = find_orchestrator(target);
  if (found.ok()) return FoundOrchestrator{found.take(), false};
  api::DaemonStart start{.what = "the orchestrator",
                         .program = base::own_folder() / "orchestratord",
                         .arguments = {"--log-format", "json", "--any-port"},
                         .log_file = target.home.logs() / "orchestrator.log"};
  start.arguments.insert(start.arguments.end(), {"--log-file", start.log_file.string()});
  const Status started = api::start_daemon(start, [&target, &found] {
    found = find_orchestrator(target);
    return found.ok() && found->calls().get("/health", {.total = kHealthPatience}).ok();
  });
  if (!started.ok()) return started.error();
  return FoundOrchestrator{found.take(), true};
}

std::filesystem::path key_file(const base::Home& home) {
  return home.data / "key";
}

std::optional<std::string> read_own_key(const base::Home& home) {
  Result<std::string> text = base::read_text_file(key_file(home), kKeyBytesMax);
  if (!text.ok()) return std::nullopt;
  while (text->ends_with('\n')) text->pop_back();
  if (text->empty()) return std::nullopt;
  return text.take();
}

}  // namespace llorch::cli
