// Asking a pool manager over HTTP, and starting one where there is none. Private to cli/.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/json.h"
#include "base/result.h"
#include "contract/pool_info.h"
#include "http/client.h"
#include "http/sse.h"

namespace llorch::cli {

// Which manager a command means.
struct PoolTarget {
  base::Environment environment;
  base::Home home;
  std::string url;    // named by the user; empty: the one of this home
  std::string token;  // may be empty
};

// One thread.
class PoolClient {
 public:
  PoolClient(std::string url, std::string token);

  const std::string& url() const { return url_; }

  // The JSON of a 2xx answer; any other answer is the error it says. Unavailable when nobody
  // answers.
  Result<json::Value> get(std::string_view path);
  Result<json::Value> post(std::string_view path, const json::Object& body);
  Result<json::Value> patch(std::string_view path, const json::Object& body);
  Result<json::Value> remove(std::string_view path);  // DELETE

  // A 2xx body as text; the whole of it, or piece by piece until `on_bytes` returns false.
  Result<std::string> get_text(std::string_view path);
  // Cancelled at once when `stop` says so.
  Status stream(std::string_view path, const std::function<bool(std::string_view bytes)>& on_bytes,
                std::stop_token stop = {});

  // GET /health whatever its status; Unavailable when nobody answers within a second.
  Result<json::Object> health();

  Result<std::vector<contract::PoolWorker>> workers();
  Result<contract::PoolWorker> worker(std::string_view id);
  Result<contract::PoolWorker> post_worker(std::string_view path, const json::Object& body);

 private:
  Result<json::Value> send_body(http::Method method, std::string_view path,
                                const json::Object& body);
  Result<http::Response> send(http::ClientRequest request);

  std::string url_;
  std::string token_;
  std::unique_ptr<http::Client> client_;
};

// The manager that answers, when one does: the one named, else the one that this home's pool.json
// names. NotFound when there is none, also when another home's answers on the usual port; of one
// that is named and does not answer, Unavailable says so.
Result<PoolClient> find_pool(const PoolTarget& target);

// The same, but where there is none on this machine it is started: `pool-managerd` beside us, in a
// session of its own, on the usual port or a free one, its log in Home::logs()/pool.log; it leaves
// when nothing has used it for a while. Two that come at once start one.
Result<PoolClient> find_or_start_pool(const PoolTarget& target);

// Whether the address is one of loopback.
bool is_on_this_host(const std::string& url);

// Waits until a worker is ready. An error when it failed instead (its category, its reason and its
// last log lines), when it is gone, or when `give_up` says so (Cancelled). `on_look` sees every
// state on the way.
Result<contract::PoolWorker> wait_until_ready(
    PoolClient& client, std::string_view id,
    const std::function<void(const contract::PoolWorker& worker)>& on_look,
    const std::function<bool()>& give_up);

// "worker-cpu-0 failed: crash: was ended by signal 11 …" and its last log lines, indented.
std::string describe_failure(const contract::PoolWorker& worker);

}  // namespace llorch::cli
