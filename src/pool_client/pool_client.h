// A pool manager, asked over HTTP.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "contract/download_event.h"
#include "contract/pool_info.h"
#include "http/client.h"
#include "http/sse.h"

namespace llorch::pool_client {

// How long a call may last, and who may end it before.
struct CallLimits {
  std::chrono::milliseconds total{30'000};  // 0: no limit; DeadlineExceeded after it
  std::stop_token stop{};                   // Cancelled at once, from any thread
};

struct PoolAddress {
  std::string url;             // http://host:port
  std::string token{};         // may be empty
  std::string token_advice{};  // what a message adds where the token is refused; may be empty
  std::string who{"the pool manager"};  // who answers there, in messages
  std::string ca_file{};                // for https: see http::ClientOptions
  std::string more_ca_file{};
};

// Every call blocks, and any thread may make one. An answer other than 2xx is the error that it
// says; Unavailable when nobody answers.
class PoolClient {
 public:
  explicit PoolClient(PoolAddress address);

  const std::string& url() const { return address_.url; }

  // The JSON of the answer.
  Result<json::Value> get(std::string_view path, const CallLimits& limits = {}) const;
  Result<json::Value> post(std::string_view path, const json::Object& body,
                           const CallLimits& limits = {}, const http::Headers& headers = {}) const;
  Result<json::Value> patch(std::string_view path, const json::Object& body,
                            const CallLimits& limits = {}) const;
  Result<json::Value> remove(std::string_view path, const CallLimits& limits = {}) const;

  // The list of that name in the answer's object.
  Result<json::Array> get_list(std::string_view path, std::string_view name,
                               const CallLimits& limits = {}) const;
  Result<std::string> get_text(std::string_view path, const CallLimits& limits = {}) const;

  // Each event of a stream, until it ends or `on_event` returns false; both are ok.
  Status read_events(std::string_view path,
                     const std::function<bool(const http::SseEvent& event)>& on_event,
                     const CallLimits& limits, const http::Headers& headers = {}) const;

  // GET /health whatever its status; Unavailable when something else than a manager answers.
  Result<json::Object> health(const CallLimits& limits = {.total = std::chrono::seconds(2)}) const;

  Result<std::vector<contract::PoolWorker>> workers(const CallLimits& limits = {}) const;
  Result<contract::PoolWorker> worker(std::string_view id, const CallLimits& limits = {}) const;
  // A POST whose answer is a worker: start, stop, restart.
  Result<contract::PoolWorker> post_worker(std::string_view path, const json::Object& body,
                                           const CallLimits& limits = {}) const;

 private:
  http::ClientRequest make_request(http::Method method, std::string_view path,
                                   const CallLimits& limits, http::Headers headers = {}) const;
  Result<http::Response> send(const http::ClientRequest& request) const;
  Result<json::Value> call(http::Method method, std::string_view path, const json::Object* body,
                           const CallLimits& limits, const http::Headers& headers) const;
  Error refusal_of(const http::Response& response) const;

  PoolAddress address_;
  std::unique_ptr<http::Client> client_;
};

// Waits until a worker is ready. An error when it failed instead (LoadFailed: its category, its
// reason and its last log lines), when it is gone, or when the limits say so. `on_look` sees every
// state on the way.
Result<contract::PoolWorker> wait_until_ready(
    const PoolClient& client, std::string_view id,
    const std::function<void(const contract::PoolWorker& worker)>& on_look,
    const CallLimits& limits);

// "worker-cpu-0 failed (crash): was ended by signal 11 …" and its last log lines, indented.
std::string describe_failure(const contract::PoolWorker& worker);

// Tells everything about a download of the manager until it has ended: then what its last event
// says, a result or an error. Cancelled as soon as `stop` says so, which leaves the download alone;
// Unavailable when the manager goes away.
Result<json::Object> follow_download(const PoolClient& client, std::string_view id,
                                     const contract::OnDownloadEvent& on_event,
                                     std::stop_token stop);

}  // namespace llorch::pool_client
