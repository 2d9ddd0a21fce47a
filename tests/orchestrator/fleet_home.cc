#include "fleet_home.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "api/daemon_address.h"
#include "base/process_table.h"

namespace llorch::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{90};
constexpr std::chrono::milliseconds kLook{20};

const json::Value* field(const json::Value& body, std::string_view name) {
  return body.is_object() ? body.get_object().if_contains(name) : nullptr;
}

}  // namespace

std::string Answer::text(std::string_view name) const {
  const json::Value* value = field(body, name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

double Answer::number(std::string_view name) const {
  const json::Value* value = field(body, name);
  return value != nullptr && value->is_number() ? value->to_number<double>() : -1;
}

std::size_t Followed::count(std::string_view event) const {
  return static_cast<std::size_t>(
      std::count_if(events.begin(), events.end(),
                    [event](const http::SseEvent& one) { return one.event == event; }));
}

const http::SseEvent* Followed::find(std::string_view event) const {
  for (const http::SseEvent& one : events) {
    if (one.event == event) return &one;
  }
  return nullptr;
}

FleetHome::FleetHome(std::vector<std::string> flags, std::vector<std::string> environment)
    : flags_(std::move(flags)), environment_(std::move(environment)) {}

FleetHome::~FleetHome() {
  orchestrator_.reset();
  const auto pool = api::read_daemon_address(folder_ / "pool.json");
  if (!pool) return;
  ::kill(pool->process.pid, SIGTERM);
  EXPECT_TRUE(wait_until([&pool] { return !base::is_running(pool->process); }))
      << "the pool is left behind";
}

bool FleetHome::wait_until(const std::function<bool()>& condition) {
  const auto until = Clock::now() + kPatience;
  while (!condition()) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

void FleetHome::start() {
  std::vector<std::string> arguments = {"--port", "0", "--log-format", "json"};
  arguments.insert(arguments.end(), flags_.begin(), flags_.end());
  std::vector<std::string> environment = environment_;
  environment.insert(environment.end(),
                     {"LLORCH_HOME=" + folder_.path().string(), "LLORCH_POOL_PORT=0"});
  orchestrator_ = std::make_unique<ChildProcess>(LLORCH_ORCHESTRATORD, std::move(arguments),
                                                 std::move(environment));
  constexpr std::string_view kSays = "listening on ";
  ASSERT_TRUE(wait_until([&] {
    return orchestrator_->out().find(kSays) != std::string::npos || !orchestrator_->is_running();
  }));
  const std::string out = orchestrator_->out();
  ASSERT_NE(out.find(kSays), std::string::npos) << orchestrator_->err();
  url_ = out.substr(out.find(kSays) + kSays.size());
  url_.resize(url_.find('\n'));
  ASSERT_TRUE(wait_until([&] {
    if (get("/health").status != 200) return false;
    const Answer host = get("/v2/hosts/local");
    return host.status == 200 && host.text("state") == "connected";
  })) << orchestrator_->err();
}

void FleetHome::kill() {
  orchestrator_->signal(SIGKILL);
  orchestrator_->wait();
}

std::optional<int> FleetHome::stop() {
  orchestrator_->signal(SIGTERM);
  return orchestrator_->wait();
}

std::string FleetHome::pool_url() {
  return get("/v2/hosts/local").text("pool_url");
}

pid_t FleetHome::pid_of_worker(std::string_view worker) {
  const std::string id(worker.substr(worker.find('/') == worker.npos ? 0 : worker.find('/') + 1));
  const Result<http::Response> answer =
      client_.send({http::Method::Get, pool_url() + "/v2/workers/" + id});
  const Result<json::Value> body = answer.ok() ? json::parse(answer->body) : answer.error();
  const json::Value* pid =
      body.ok() && body->is_object() ? body->get_object().if_contains("pid") : nullptr;
  EXPECT_TRUE(pid != nullptr && pid->is_int64()) << id;
  return pid != nullptr && pid->is_int64() ? static_cast<pid_t>(pid->get_int64()) : 0;
}

Answer FleetHome::send(http::Method method, std::string_view path, const json::Object* body,
                       const http::Headers& headers) {
  http::ClientRequest request(method, url_ + std::string(path));
  request.headers = headers;
  if (body != nullptr) request.body = json::serialize(*body);
  request.total_timeout = std::chrono::seconds(60);
  Answer answer;
  Result<http::Response> response = client_.send(request);
  if (!response.ok()) return answer;
  answer.status = response->status;
  answer.headers = response->headers;
  if (Result<json::Value> value = json::parse(response->body); value.ok())
    answer.body = value.take();
  return answer;
}

Answer FleetHome::get(std::string_view path, const http::Headers& headers) {
  return send(http::Method::Get, path, nullptr, headers);
}

Answer FleetHome::post(std::string_view path, const json::Object& body,
                       const http::Headers& headers) {
  return send(http::Method::Post, path, &body, headers);
}

Answer FleetHome::remove(std::string_view path, const http::Headers& headers) {
  return send(http::Method::Delete, path, nullptr, headers);
}

std::string FleetHome::submit(const json::Object& body) {
  const Answer answer = post("/v2/tasks", body);
  EXPECT_EQ(answer.status, 202) << json::serialize(answer.body);
  EXPECT_EQ(answer.text("status"), "queued");
  EXPECT_EQ(answer.text("events_url"), "/v2/tasks/" + answer.text("job_id") + "/events");
  return answer.text("job_id");
}

Followed FleetHome::follow(std::string_view job, std::string_view last_event_id,
                           const std::function<bool(const Followed&)>& enough) {
  http::ClientRequest request(http::Method::Get,
                              url_ + "/v2/tasks/" + std::string(job) + "/events");
  if (!last_event_id.empty()) request.headers.add("Last-Event-ID", std::string(last_event_id));
  request.total_timeout = kPatience;
  Followed followed;
  http::SseReader reader;
  const Result<http::Response> response = client_.stream(request, [&](std::string_view bytes) {
    std::vector<http::SseEvent> events;
    if (!reader.feed(bytes, events).ok()) return false;
    for (http::SseEvent& event : events) {
      if (event.event == "token") {
        const Result<json::Value> data = json::parse(event.data);
        EXPECT_TRUE(data.ok()) << event.data;
        if (data.ok()) followed.text += data->as_object().at("t").as_string();
      }
      followed.events.push_back(std::move(event));
      if (enough && enough(followed)) return false;
    }
    return true;
  });
  if (response.ok()) followed.status = response->status;
  return followed;
}

json::Object story(int max_tokens) {
  return {{"model", "builtin"},
          {"prompt", "Once upon a time"},
          {"max_tokens", max_tokens},
          {"temperature", 0.8},
          {"seed", 7},
          {"detach", true}};
}

}  // namespace llorch::test
