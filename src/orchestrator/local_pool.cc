#include "orchestrator/local_pool.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "api/daemon_address.h"
#include "api/start_daemon.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "http/url.h"
#include "pool_client/pool_client.h"

namespace llorch::orchestrator {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience{20'000};
constexpr milliseconds kServiceLook{200};

// Nothing unless it runs, answers, has begun and does not end.
std::optional<PoolAddress> find_running(const LocalPoolOptions& options) {
  const auto address = api::read_daemon_address(options.home.state / "pool.json");
  if (!address) return std::nullopt;
  // By its socket, where it has one: there it knows us (the boot counts), and needs neither a token
  // nor an authority.
  const std::string url = address->socket.empty() ? address->url : http::unix_url(address->socket);
  const pool_client::PoolClient client({.url = url, .token = options.token});
  const Result<json::Object> health = client.health();
  const json::Value* status = health.ok() ? health->if_contains("status") : nullptr;
  if (status == nullptr || *status == "starting" || *status == "draining") return std::nullopt;
  return PoolAddress{url, options.token};
}

// Where a service starts it, maybe just now.
Result<PoolAddress> wait_for_pool(const LocalPoolOptions& options) {
  const auto until = Clock::now() + kPatience;
  while (Clock::now() < until) {
    if (auto found = find_running(options)) return *found;
    std::this_thread::sleep_for(kServiceLook);
  }
  return Error{ErrorCode::Unavailable,
               "no pool manager runs in this home, and --start-pool is false; start it: "
               "`systemctl start pool-managerd`"};
}

}  // namespace

Result<PoolAddress> find_or_start_local_pool(const LocalPoolOptions& options) {
  if (auto found = find_running(options)) return *found;
  if (options.program.empty()) return wait_for_pool(options);
  for (const auto& folder : {options.home.state, options.home.logs()}) {
    if (Status made = base::make_private_folder(folder); !made.ok()) return made.error();
  }
  const auto lock = base::FileLock::acquire(options.home.state / "pool.start.lock", kPatience);
  if (!lock.ok()) return lock.error();
  // One that ends is waited for: until then the home is its own.
  const auto until = Clock::now() + kPatience;
  while (api::read_daemon_address(options.home.state / "pool.json") && Clock::now() < until) {
    if (auto found = find_running(options)) return *found;
    std::this_thread::sleep_for(kServiceLook);
  }
  api::DaemonStart start{.what = "the pool manager of this machine",
                         .program = options.program,
                         .arguments = {"--any-port", "--log-format", "json"},
                         .log_file = options.home.logs() / "pool.log",
                         .patience = kPatience};
  start.arguments.insert(start.arguments.end(), {"--log-file", start.log_file.string()});
  std::optional<PoolAddress> found;
  const Status started = api::start_daemon(start, [&options, &found] {
    found = find_running(options);
    return found.has_value();
  });
  if (!started.ok()) return started.error();
  return *found;
}

}  // namespace llorch::orchestrator
