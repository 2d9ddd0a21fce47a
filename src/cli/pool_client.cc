#include "cli/pool_client.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <utility>

#include "base/file_lock.h"
#include "base/process.h"
#include "base/terminal.h"
#include "catalog/model_catalog.h"
#include "cli/output.h"
#include "contract/error_table.h"
#include "http/url.h"
#include "pool/log_tail.h"
#include "pool/run.h"

namespace llorch::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kUsualUrl = "http://127.0.0.1:9200";
constexpr milliseconds kConnectTimeout{1'000};
constexpr milliseconds kHealthTimeout{2'000};
constexpr milliseconds kStartPatience{20'000};
constexpr milliseconds kTick{20};
constexpr milliseconds kLook{100};

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::filesystem::path program_beside_us() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (error ? std::filesystem::path() : self.parent_path()) / "pool-managerd";
}

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
                      PoolClient(std::string(kUsualUrl), "").health().ok()
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
    auto held = base::HeldProcess::spawn(program_beside_us(), std::move(arguments),
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

Result<json::Value> parse_answer(const http::Response& response) {
  Result<json::Value> value = json::parse(response.body);
  if (!value.ok()) return value.error().in("the pool manager's answer");
  return value;
}

}  // namespace

PoolClient::PoolClient(std::string url, std::string token)
    : url_(std::move(url)), token_(std::move(token)), client_(std::make_unique<http::Client>()) {
  while (url_.ends_with('/')) url_.pop_back();
}

Result<http::Response> PoolClient::send(http::ClientRequest request) {
  if (!token_.empty()) request.headers.set("Authorization", "Bearer " + token_);
  request.connect_timeout = kConnectTimeout;
  Result<http::Response> response = client_->send(request);
  if (!response.ok()) {
    return Error{response.error().code, fmt::format("the pool manager at {} does not answer: {}",
                                                    url_, response.error().message)};
  }
  if (response->status / 100 == 2) return response;
  const Result<contract::ErrorReport> report = contract::parse_error_body(response->body);
  if (!report.ok()) return report.error();
  if (response->status == 401) {
    return Error{report->error.code,
                 report->error.message + " (set LLORCH_TOKEN, or name a file with --token-file)"};
  }
  return report->error;
}

Result<json::Value> PoolClient::get(std::string_view path) {
  const Result<http::Response> response =
      send(http::ClientRequest(http::Method::Get, url_ + std::string(path)));
  if (!response.ok()) return response.error();
  return parse_answer(*response);
}

Result<json::Value> PoolClient::remove(std::string_view path) {
  const Result<http::Response> response =
      send(http::ClientRequest(http::Method::Delete, url_ + std::string(path)));
  if (!response.ok()) return response.error();
  return parse_answer(*response);
}

Result<json::Value> PoolClient::post(std::string_view path, const json::Object& body) {
  return send_body(http::Method::Post, path, body);
}

Result<json::Value> PoolClient::patch(std::string_view path, const json::Object& body) {
  return send_body(http::Method::Patch, path, body);
}

Result<json::Value> PoolClient::send_body(http::Method method, std::string_view path,
                                          const json::Object& body) {
  http::ClientRequest request(method, url_ + std::string(path));
  request.headers.set("Content-Type", "application/json");
  request.body = json::serialize(body);
  const Result<http::Response> response = send(std::move(request));
  if (!response.ok()) return response.error();
  return parse_answer(*response);
}

Result<std::string> PoolClient::get_text(std::string_view path) {
  Result<http::Response> response =
      send(http::ClientRequest(http::Method::Get, url_ + std::string(path)));
  if (!response.ok()) return response.error();
  return std::move(response->body);
}

Status PoolClient::stream(std::string_view path,
                          const std::function<bool(std::string_view bytes)>& on_bytes,
                          std::stop_token stop) {
  http::ClientRequest request(http::Method::Get, url_ + std::string(path));
  request.stop = std::move(stop);
  if (!token_.empty()) request.headers.set("Authorization", "Bearer " + token_);
  request.total_timeout = milliseconds(0);
  const Result<http::Response> response = client_->stream(request, on_bytes);
  if (!response.ok()) return response.error();
  if (response->status / 100 == 2) return ok_status();
  const Result<contract::ErrorReport> report = contract::parse_error_body(response->body);
  return report.ok() ? Status(report->error) : Status(report.error());
}

Result<json::Object> PoolClient::health() {
  http::ClientRequest request(http::Method::Get, url_ + "/health");
  request.connect_timeout = kConnectTimeout;
  request.total_timeout = kHealthTimeout;
  const Result<http::Response> response = client_->send(request);
  if (!response.ok()) return response.error();
  Result<json::Value> value = parse_answer(*response);
  if (!value.ok()) return value.error();
  if (!value->is_object() || !value->get_object().contains("pool_id")) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("something else than a pool manager answers at {}", url_)};
  }
  return std::move(value->get_object());
}

Result<std::vector<contract::PoolWorker>> PoolClient::workers() {
  const Result<json::Value> answer = get("/v2/workers");
  if (!answer.ok()) return answer.error();
  const json::Object* object = answer->if_object();
  const json::Value* list = object != nullptr ? object->if_contains("workers") : nullptr;
  std::vector<contract::PoolWorker> workers;
  if (list == nullptr || !list->is_array())
    return Error{ErrorCode::Internal, "the pool manager's answer has no workers"};
  for (const json::Value& value : list->get_array()) {
    Result<contract::PoolWorker> worker = contract::parse_pool_worker(value);
    if (!worker.ok()) return worker.error();
    workers.push_back(worker.take());
  }
  return workers;
}

Result<contract::PoolWorker> PoolClient::worker(std::string_view id) {
  const Result<json::Value> answer = get(fmt::format("/v2/workers/{}", http::percent_encode(id)));
  if (!answer.ok()) return answer.error();
  return contract::parse_pool_worker(*answer);
}

Result<contract::PoolWorker> PoolClient::post_worker(std::string_view path,
                                                     const json::Object& body) {
  const Result<json::Value> answer = post(path, body);
  if (!answer.ok()) return answer.error();
  return contract::parse_pool_worker(*answer);
}

Result<PoolClient> find_pool(const PoolTarget& target) {
  if (!target.url.empty()) {
    if (const Result<http::Url> url = http::parse_url(target.url); !url.ok())
      return url.error().in("--pool");
    PoolClient client(target.url, target.token);
    if (const Result<json::Object> health = client.health(); !health.ok()) {
      return Error{health.error().code, fmt::format("no pool manager answers at {}: {}", target.url,
                                                    health.error().message)};
    }
    return client;
  }
  // Only pool.json says which manager is this home's: on the usual port may be another user's.
  if (const auto address = pool::read_pool_address(target.home)) {
    PoolClient client(address->url, target.token);
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
  return parsed.ok() && is_loopback(parsed->host);
}

std::string describe_failure(const contract::PoolWorker& worker) {
  std::string text = fmt::format("{} failed", worker.id);
  if (worker.category != contract::ExitCategory::None)
    text += fmt::format(" ({})", contract::name(worker.category));
  if (!worker.reason.empty()) text += ": " + worker.reason;
  for (const std::string& line : worker.last_log_lines) text += "\n    " + base::printable(line);
  return text;
}

Result<contract::PoolWorker> wait_until_ready(
    PoolClient& client, std::string_view id,
    const std::function<void(const contract::PoolWorker& worker)>& on_look,
    const std::function<bool()>& give_up) {
  for (;;) {
    Result<contract::PoolWorker> worker = client.worker(id);
    if (!worker.ok()) return worker;
    on_look(*worker);
    switch (worker->state) {
      case contract::PoolWorkerState::Ready:
      case contract::PoolWorkerState::Busy:
        return worker;
      case contract::PoolWorkerState::Stopped:
      case contract::PoolWorkerState::Failed:
        return Error{ErrorCode::LoadFailed, describe_failure(*worker)};
      case contract::PoolWorkerState::Starting:
      case contract::PoolWorkerState::Draining:
        break;
    }
    if (give_up()) return Error{ErrorCode::Cancelled, "interrupted"};
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace llorch::cli
