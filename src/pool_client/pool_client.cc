#include "pool_client/pool_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "contract/error_table.h"
#include "http/url.h"

namespace llorch::pool_client {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kConnectTimeout{1'000};
constexpr milliseconds kLook{100};

Result<json::Value> parse_answer(const Result<http::Response>& response, std::string_view who) {
  if (!response.ok()) return response.error();
  Result<json::Value> value = json::parse(response->body);
  if (!value.ok()) return value.error().in(fmt::format("{}'s answer", who));
  return value;
}

Result<contract::PoolWorker> read_worker(const Result<json::Value>& answer) {
  if (!answer.ok()) return answer.error();
  return contract::parse_pool_worker(*answer);
}

// What the events of a download's stream say.
class Follower {
 public:
  explicit Follower(const contract::OnDownloadEvent& on_event) : on_event_(on_event) {}

  // False: that was the last one.
  bool take(const http::SseEvent& event) {
    using Kind = contract::DownloadEvent::Kind;
    if (event.event == "error") {
      outcome_ = contract::parse_error_event(event.data);
      return false;
    }
    const Result<json::Value> value = json::parse(event.data);
    if (!value.ok() || !value->is_object()) return true;  // not ours to judge
    if (event.event == "done") {
      outcome_ = value->get_object();
      return false;
    }
    contract::DownloadEvent told = contract::read_download_event(value->get_object());
    if (event.event == "note") told.kind = Kind::Note;
    if (told.model.empty()) told.model = model_;
    model_ = told.model;
    // The newest state comes again with every change; where it was found is told once.
    if (told.kind == Kind::Resolved && std::exchange(has_resolved_, true)) return true;
    if (on_event_) on_event_(told);
    return true;
  }

  std::optional<Result<json::Object>> take_outcome() { return std::move(outcome_); }

 private:
  const contract::OnDownloadEvent& on_event_;
  std::string model_;
  bool has_resolved_ = false;
  std::optional<Result<json::Object>> outcome_;
};

}  // namespace

PoolClient::PoolClient(PoolAddress address)
    : address_(std::move(address)),
      client_(std::make_unique<http::Client>(http::ClientOptions{
          .ca_file = address_.ca_file, .more_ca_file = address_.more_ca_file})) {
  while (address_.url.ends_with('/')) address_.url.pop_back();
}

http::ClientRequest PoolClient::make_request(http::Method method, std::string_view path,
                                             const CallLimits& limits,
                                             http::Headers headers) const {
  http::ClientRequest request(method, address_.url + std::string(path));
  request.headers = std::move(headers);
  if (!address_.token.empty()) request.headers.set("Authorization", "Bearer " + address_.token);
  request.connect_timeout = kConnectTimeout;
  request.total_timeout = limits.total;
  request.stop = limits.stop;
  return request;
}

Error PoolClient::refusal_of(const http::Response& response) const {
  const Result<contract::ErrorReport> report = contract::parse_error_body(response.body);
  if (!report.ok()) return report.error();
  Error refusal = report->error;
  if (response.status == 401 && !address_.token_advice.empty())
    refusal.message += fmt::format(" ({})", address_.token_advice);
  return refusal;
}

Result<http::Response> PoolClient::send(const http::ClientRequest& request) const {
  Result<http::Response> response = client_->send(request);
  if (!response.ok()) {
    return Error{response.error().code, fmt::format("{} at {} does not answer: {}", address_.who,
                                                    url(), response.error().message)};
  }
  if (response->status / 100 != 2) return refusal_of(*response);
  return response;
}

Result<json::Value> PoolClient::call(http::Method method, std::string_view path,
                                     const json::Object* body, const CallLimits& limits,
                                     const http::Headers& headers) const {
  http::ClientRequest request = make_request(method, path, limits, headers);
  if (body != nullptr) {
    request.headers.set("Content-Type", "application/json");
    request.body = json::serialize(*body);
  }
  return parse_answer(send(request), address_.who);
}

Result<json::Value> PoolClient::get(std::string_view path, const CallLimits& limits) const {
  return call(http::Method::Get, path, nullptr, limits, {});
}

Result<json::Value> PoolClient::remove(std::string_view path, const CallLimits& limits) const {
  return call(http::Method::Delete, path, nullptr, limits, {});
}

Result<json::Value> PoolClient::post(std::string_view path, const json::Object& body,
                                     const CallLimits& limits, const http::Headers& headers) const {
  return call(http::Method::Post, path, &body, limits, headers);
}

Result<json::Value> PoolClient::patch(std::string_view path, const json::Object& body,
                                      const CallLimits& limits) const {
  return call(http::Method::Patch, path, &body, limits, {});
}

Result<std::string> PoolClient::get_text(std::string_view path, const CallLimits& limits) const {
  Result<http::Response> response = send(make_request(http::Method::Get, path, limits));
  if (!response.ok()) return response.error();
  return std::move(response->body);
}

Result<json::Array> PoolClient::get_list(std::string_view path, std::string_view name,
                                         const CallLimits& limits) const {
  Result<json::Value> answer = get(path, limits);
  if (!answer.ok()) return answer.error();
  json::Object* object = answer->if_object();
  json::Value* list = object != nullptr ? object->if_contains(name) : nullptr;
  if (list == nullptr || !list->is_array())
    return Error{ErrorCode::Internal, fmt::format("{}'s answer has no {}", address_.who, name)};
  return std::move(list->get_array());
}

Status PoolClient::read_events(std::string_view path,
                               const std::function<bool(const http::SseEvent& event)>& on_event,
                               const CallLimits& limits, const http::Headers& headers) const {
  bool is_enough = false;
  const Result<http::Response> response = client_->stream_events(
      make_request(http::Method::Get, path, limits, headers), [&](const http::SseEvent& event) {
        is_enough = !on_event(event);
        return !is_enough;
      });
  if (is_enough) return ok_status();
  if (!response.ok()) return response.error();
  return response->status / 100 == 2 ? ok_status() : Status(refusal_of(*response));
}

Result<json::Object> PoolClient::health(const CallLimits& limits) const {
  http::ClientRequest request(http::Method::Get, url() + "/health");  // open to all: no token
  request.connect_timeout = kConnectTimeout;
  request.total_timeout = limits.total;
  request.stop = limits.stop;
  Result<json::Value> value = parse_answer(client_->send(request), address_.who);
  if (!value.ok()) return value.error();
  if (!value->is_object() || !value->get_object().contains("pool_id")) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("something else than a pool manager answers at {}", url())};
  }
  return std::move(value->get_object());
}

Result<std::vector<contract::PoolWorker>> PoolClient::workers(const CallLimits& limits) const {
  const Result<json::Array> list = get_list("/v2/workers", "workers", limits);
  if (!list.ok()) return list.error();
  std::vector<contract::PoolWorker> workers;
  for (const json::Value& value : *list) {
    Result<contract::PoolWorker> worker = contract::parse_pool_worker(value);
    if (!worker.ok()) return worker.error();
    workers.push_back(worker.take());
  }
  return workers;
}

Result<contract::PoolWorker> PoolClient::worker(std::string_view id,
                                                const CallLimits& limits) const {
  return read_worker(get(fmt::format("/v2/workers/{}", http::percent_encode(id)), limits));
}

Result<contract::PoolWorker> PoolClient::post_worker(std::string_view path,
                                                     const json::Object& body,
                                                     const CallLimits& limits) const {
  return read_worker(post(path, body, limits));
}

std::string describe_failure(const contract::PoolWorker& worker) {
  std::string text = fmt::format("{} failed", worker.id);
  if (worker.category != contract::ExitCategory::None)
    text += fmt::format(" ({})", contract::name(worker.category));
  if (!worker.reason.empty()) text += ": " + worker.reason;
  for (const std::string& line : worker.last_log_lines) text += "\n    " + line;
  return text;
}

Result<contract::PoolWorker> wait_until_ready(
    const PoolClient& client, std::string_view id,
    const std::function<void(const contract::PoolWorker& worker)>& on_look,
    const CallLimits& limits) {
  const bool has_limit = limits.total.count() > 0;
  const Clock::time_point until = Clock::now() + limits.total;
  for (;;) {
    Result<contract::PoolWorker> worker = client.worker(id, {.stop = limits.stop});
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
    if (has_limit && Clock::now() >= until) {
      return Error{ErrorCode::DeadlineExceeded,
                   fmt::format("{} is still {} after {} ms", id, contract::name(worker->state),
                               limits.total.count())};
    }
    if (!base::real_clock().sleep_for(kLook, limits.stop))
      return Error{ErrorCode::Cancelled, "interrupted"};
  }
}

Result<json::Object> follow_download(const PoolClient& client, std::string_view id,
                                     const contract::OnDownloadEvent& on_event,
                                     std::stop_token stop) {
  Follower follower(on_event);
  const Status streamed =
      client.read_events(fmt::format("/v2/downloads/{}/events", http::percent_encode(id)),
                         [&follower](const http::SseEvent& event) { return follower.take(event); },
                         {.total = milliseconds(0), .stop = std::move(stop)});
  if (std::optional<Result<json::Object>> outcome = follower.take_outcome())
    return std::move(*outcome);
  if (!streamed.ok()) return streamed.error();
  return Error{ErrorCode::Unavailable,
               "the pool manager ended in the middle of it; the same command goes on from here"};
}

}  // namespace llorch::pool_client
