#include "cli/find_pool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "base/file_lock.h"
#include "base/own_program.h"
#include "base/process.h"
#include "base/terminal.h"
#include "catalog/model_catalog.h"
#include "http/url.h"
#include "pool/log_tail.h"
#include "pool/run.h"

namespace llorch::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kUsualUrl = "http://127.0.0.1:9200";
constexpr milliseconds kStartPatience{20'000};
constexpr milliseconds kTick{20};

// Everything but what another service manager told us.
std::vector<std::string> environment_for_manager() {
  std::vector<std::string> all;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with("NOTIFY_SOCKET=")) all.emplace_back(text);
  }
  return all;
}

Error nobody_runs() {
  return {ErrorCode::NotFound,
          fmt::format("no pool manager is running; `llorch-pool serve` starts one, and so does "
                      "`llorch-pool worker spawn`{}",
                      PoolClient({.url = std::string(kUsualUrl)}).health().ok()
                          ? fmt::format(" (the one at {} belongs to another home: --pool {} means "
                                        "it)",
                                        kUsualUrl, kUsualUrl)
                          : "")};
}

// Whether the manager that answers has this home's catalog. One that has no id yet has just begun.
bool is_of_home(const json::Object& health, const base::Home& home) {
  const Result<catalog::CatalogContent> content = catalog::ModelCatalog(home.catalog_file()).read();
  const json::Value* id = health.if_contains("pool_id");
  if (!content.ok() || content->pool_id.empty() || id == nullptr || !id->is_string()) return true;
  return id->get_string().empty() || id->get_string() == content->pool_id;
}

// A manager that was asked to start but has not said that it is ready.
class Starting {
 public:
  explicit Starting(const PoolTarget& target)
      : target_(target), log_file_(target.home.logs() / "pool.log") {}

  Result<PoolClient> start() {
    std::error_code error;
    std::filesystem::create_directories(target_.home.logs(), error);
    std::vector<std::string> arguments = {"--log-file", log_file_.string(), "--log-format", "json"};
    arguments.emplace_back("--by-command");
    if (target_.url.empty()) arguments.emplace_back("--any-port");
    if (!target_.url.empty()) {
      const Result<http::Url> url = http::parse_url(target_.url);
      if (!url.ok()) return url.error();
      arguments.insert(arguments.end(), {"--host", url->host, "--port", std::to_string(url->port)});
    }
    auto held = base::HeldProcess::spawn(base::own_folder() / "pool-managerd", std::move(arguments),
                                         environment_for_manager());
    if (!held.ok()) return held.error();
    Result<base::ProcessHandle> released = (*held)->release();
    if (!released.ok()) {
      return Error{released.error().code,
                   fmt::format("{}; it belongs beside llorch-pool", released.error().message)};
    }
    return wait(*released);
  }

 private:
  Result<PoolClient> wait(const base::ProcessHandle& process) const {
    const auto until = Clock::now() + kStartPatience;
    while (Clock::now() < until) {
      // It may have lost against one that somebody else started, so both are asked.
      if (Result<PoolClient> found = find_pool(target_); found.ok()) {
        const Result<json::Object> health = found->health();
        const json::Value* status = health.ok() ? health->if_contains("status") : nullptr;
        if (status != nullptr && *status != "starting") return found;
      }
      if (process.has_ended()) break;
      std::this_thread::sleep_for(kTick);
    }
    return Error{ErrorCode::Unavailable,
                 fmt::format("the pool manager did not start: {}; its log is {}", last_words(),
                             log_file_.string())};
  }

  std::string last_words() const {
    Result<pool::LogTail> tail = pool::LogTail::open(log_file_, 1);
    const Result<std::string> line = tail.ok() ? tail->read_more(true) : tail.error();
    if (!line.ok() || line->empty()) return "it said nothing";
    return base::printable(std::string_view(*line).substr(0, line->find_last_not_of('\n') + 1));
  }

  const PoolTarget& target_;
  const std::filesystem::path log_file_;
};

PoolClient client_for(const PoolTarget& target, std::string url) {
  return PoolClient({.url = std::move(url),
                     .token = target.token,
                     .token_advice = "set LLORCH_TOKEN, or name a file with --token-file"});
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
    PoolClient client = client_for(target, address->url);
    const Result<json::Object> health = client.health();
    if (health.ok() && is_of_home(*health, target.home)) return client;
  }
  return nobody_runs();
}

Result<PoolClient> find_or_start_pool(const PoolTarget& target) {
  Result<PoolClient> found = find_pool(target);
  if (found.ok()) return found;
  if (!target.url.empty() && !is_on_this_host(target.url)) return found.error();
  std::error_code ignored;
  std::filesystem::create_directories(target.home.state, ignored);
  const auto lock = base::FileLock::acquire(target.home.state / "pool.start.lock", kStartPatience);
  if (!lock.ok()) return lock.error();
  found = find_pool(target);
  if (found.ok()) return found;
  return Starting(target).start();
}

bool is_on_this_host(const std::string& url) {
  const Result<http::Url> parsed = http::parse_url(url);
  return parsed.ok() && http::is_loopback(parsed->host);
}

}  // namespace llorch::cli
