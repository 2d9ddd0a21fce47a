#include "cli/find_pool.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "api/local_ca.h"
#include "api/start_daemon.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/own_program.h"
#include "base/process_table.h"
#include "catalog/model_catalog.h"
#include "contract/default_ports.h"
#include "http/url.h"
#include "pool/run.h"

namespace llorch::cli {
namespace {

constexpr std::chrono::milliseconds kLook{50};
// Draining, terminating and killing have their own limits; this is beyond their sum.
constexpr std::chrono::seconds kStopPatience{180};
constexpr std::chrono::seconds kKillPatience{10};

Error nobody_runs() {
  const std::string usual = fmt::format("http://127.0.0.1:{}", contract::kPoolPort);
  return {ErrorCode::NotFound,
          fmt::format("no pool manager is running; `llorch-pool serve` starts one, and so does "
                      "`llorch-pool worker spawn`{}",
                      PoolClient({.url = usual}).health().ok()
                          ? fmt::format(" (the one at {} belongs to another home: --pool {} means "
                                        "it)",
                                        usual, usual)
                          : "")};
}

// Whether the manager that answers has this home's catalog. One that has no id yet has just begun.
bool is_of_home(const json::Object& health, const base::Home& home) {
  const Result<catalog::CatalogContent> content = catalog::ModelCatalog(home.catalog_file()).read();
  const json::Value* id = health.if_contains("pool_id");
  if (!content.ok() || content->pool_id.empty() || id == nullptr || !id->is_string()) return true;
  return id->get_string().empty() || id->get_string() == content->pool_id;
}

Result<PoolClient> start_pool(const PoolTarget& target) {
  api::DaemonStart start{.what = "the pool manager",
                         .program = base::own_folder() / "pool-managerd",
                         .arguments = {"--log-format", "json", "--by-command"},
                         .log_file = target.home.logs() / "pool.log"};
  start.arguments.insert(start.arguments.end(), {"--log-file", start.log_file.string()});
  if (target.stays) start.arguments.insert(start.arguments.end(), {"--idle-exit", "0"});
  if (target.url.empty()) {
    start.arguments.emplace_back("--any-port");
  } else {
    const Result<http::Url> url = http::parse_url(target.url);
    if (!url.ok()) return url.error();
    start.arguments.insert(start.arguments.end(),
                           {"--host", url->host, "--port", std::to_string(url->port)});
  }
  Result<PoolClient> found = Error{ErrorCode::Unavailable, "not started"};
  const Status started = api::start_daemon(start, [&target, &found] {
    found = find_pool(target);
    const Result<json::Object> health = found.ok() ? found->health() : found.error();
    const json::Value* status = health.ok() ? health->if_contains("status") : nullptr;
    return status != nullptr && *status != "starting";
  });
  if (!started.ok()) return started.error();
  return found;
}

// Whether a manager runs our own programs: the path counts, since one file may be in two versions.
bool is_our_version(const base::ProcessIdentity& manager) {
  const std::filesystem::path program = base::program_of(manager.pid);
  std::error_code error;  // one that was replaced has a name that is not there
  return program.parent_path() == base::own_folder() && std::filesystem::exists(program, error);
}

// Whether they lie where versions of ours do.
bool is_beside_us(const base::ProcessIdentity& manager) {
  const std::filesystem::path program = base::program_of(manager.pid);
  return !program.empty() &&
         program.parent_path().parent_path() == base::own_folder().parent_path();
}

bool eventually(std::chrono::milliseconds patience, const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

PoolClient client_for(const PoolTarget& target, std::string url) {
  return PoolClient({.url = std::move(url),
                     .token = target.token,
                     .token_advice = "set LLORCH_TOKEN, or name a file with --token-file",
                     .ca_file = target.ca_file,
                     .more_ca_file = api::ca_file(target.home).string()});
}

}  // namespace

Result<PoolClient> find_pool(const PoolTarget& target) {
  if (!target.url.empty()) {
    if (const Result<http::Url> url = http::parse_url(target.url); !url.ok())
      return url.error().in("--pool");
    PoolClient client = client_for(target, target.url);
    if (const Result<json::Object> health = client.health(); !health.ok()) {
      return Error{health.error().code, fmt::format("no pool manager answers at {}: {}", target.url,
                                                    health.error().message)};
    }
    return client;
  }
  // Only pool.json says which manager is this home's: on the usual port may be another user's.
  if (const auto address = pool::read_pool_address(target.home)) {
    PoolClient client = client_for(target, address->local_url);
    const Result<json::Object> health = client.health();
    if (health.ok() && is_of_home(*health, target.home)) return client;
  }
  return nobody_runs();
}

Result<PoolClient> find_or_start_pool(const PoolTarget& target) {
  Result<PoolClient> found = find_pool(target);
  if (found.ok()) return found;
  if (!target.url.empty() && !is_on_this_host(target.url)) return found.error();
  if (Status made = base::make_private_folder(target.home.state); !made.ok()) return made.error();
  const auto lock =
      base::FileLock::acquire(target.home.state / "pool.start.lock", api::kDaemonStartPatience);
  if (!lock.ok()) return lock.error();
  found = find_pool(target);
  if (found.ok()) return found;
  return start_pool(target);
}

Result<bool> end_other_version(const PoolTarget& target) {
  const std::optional<pool::PoolAddress> address = pool::read_pool_address(target.home);
  if (!address || is_our_version(address->process) || !is_beside_us(address->process)) return false;
  if (!target.url.empty() && target.url != address->url) return false;
  const bool is_service = base::has_variable(address->process.pid, "NOTIFY_SOCKET");
  const Result<base::ProcessHandle> manager = base::ProcessHandle::open(address->process);
  if (!manager.ok() && manager.error().code != ErrorCode::NotFound) return manager.error();
  if (manager.ok()) manager->send_signal(SIGKILL);
  if (manager.ok() && !eventually(kKillPatience, [&] { return manager->has_ended(); })) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("the pool manager (process {}) does not end: the kernel waits for "
                             "something in its name, a disk perhaps; try again",
                             address->process.pid)};
  }
  if (!is_service) return true;
  const bool is_back = eventually(api::kDaemonStartPatience, [&target] {
    const std::optional<pool::PoolAddress> next = pool::read_pool_address(target.home);
    return next && is_our_version(next->process) && find_pool(target).ok();
  });
  if (is_back) return true;
  return Error{
      ErrorCode::Unavailable,
      fmt::format(
          "the service of the pool manager did not start this version within {} "
          "s; journalctl says why, and its log, {}",
          std::chrono::duration_cast<std::chrono::seconds>(api::kDaemonStartPatience).count(),
          (target.home.logs() / "pool.log").string())};
}

Status stop_pool(const PoolClient& client, const base::Home& home,
                 const std::function<bool(std::size_t workers)>& on_look) {
  std::optional<pool::PoolAddress> address = pool::read_pool_address(home);
  if (address && address->local_url != client.url()) address.reset();
  // One that somebody else has told to end may be gone by now, or hear nobody any more.
  if (const Result<json::Value> asked = client.post("/v2/shutdown", {});
      !asked.ok() && asked.error().code != ErrorCode::Unavailable)
    return asked.error();
  const auto until = std::chrono::steady_clock::now() + kStopPatience;
  // Nobody answers, and its process has ended where it is ours to see.
  while (client.health().ok() || (address && base::is_running(address->process))) {
    if (std::chrono::steady_clock::now() > until) {
      return Error{ErrorCode::Unavailable,
                   fmt::format("the pool manager at {} still runs after {} s; its log says why",
                               client.url(), kStopPatience.count())};
    }
    const Result<std::vector<contract::PoolWorker>> workers = client.workers();
    if (!on_look(workers.ok() ? workers->size() : 0))
      return Error{ErrorCode::Cancelled, "interrupted"};
    std::this_thread::sleep_for(kLook);
  }
  return ok_status();
}

bool is_on_this_host(const std::string& url) {
  const Result<http::Url> parsed = http::parse_url(url);
  return parsed.ok() && http::is_loopback(parsed->host);
}

}  // namespace llorch::cli
