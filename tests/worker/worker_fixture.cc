#include "worker/worker_fixture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/utf8.h"

namespace llorch::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{30};
constexpr std::chrono::milliseconds kTick{3};

template <class Condition>
bool poll_until(std::chrono::milliseconds patience, Condition condition) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kTick);
  }
  return true;
}

// One event into the outcome; its place among the others is checked.
void take_event(const http::SseEvent& event, ExecuteOutcome& outcome) {
  EXPECT_FALSE(outcome.end || outcome.error) << "an event after the last: " << event.event;
  if (event.event == "started") {
    EXPECT_FALSE(outcome.started.has_value());
    Result<contract::StartedEvent> started = contract::parse_started_event(event.data);
    ASSERT_TRUE(started.ok()) << event.data;
    outcome.started = started.take();
  } else if (event.event == "token") {
    EXPECT_TRUE(outcome.started.has_value());
    Result<contract::TokenEvent> token = contract::parse_token_event(event.data);
    ASSERT_TRUE(token.ok()) << event.data;
    EXPECT_EQ(token->index, static_cast<std::int64_t>(outcome.tokens.size()));
    EXPECT_TRUE(base::is_valid_utf8(token->text));
    EXPECT_FALSE(token->text.empty());
    outcome.tokens.push_back(std::move(token->text));
  } else if (event.event == "end") {
    Result<contract::InferenceResult> end = contract::parse_end_event(event.data);
    ASSERT_TRUE(end.ok()) << event.data;
    outcome.end = end.take();
  } else {
    EXPECT_EQ(event.event, "error");
    outcome.error = contract::parse_error_event(event.data);
  }
}

}  // namespace

json::Value parse(std::string_view text) {
  Result<json::Value> value = json::parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? value.take() : json::Value();
}

std::string cpud_program() {
  return LLORCH_CPUD;
}

std::string long_prompt(std::size_t words) {
  std::string prompt;
  for (std::size_t i = 0; i < words; ++i) prompt += fmt::format("{} ", i % 10);
  return prompt;
}

std::string ExecuteOutcome::text() const {
  std::string out;
  for (const std::string& token : tokens) out += token;
  return out;
}

WorkerFixture::WorkerFixture(const TestModelSize& size, std::vector<std::string> flags)
    : model_(folder_ / "test-model") {
  write_test_model(model_, size);
  start(std::move(flags));
}

WorkerFixture::WorkerFixture(std::filesystem::path model, std::vector<std::string> flags)
    : model_(std::move(model)) {
  start(std::move(flags));
}

void WorkerFixture::start(std::vector<std::string> flags) {
  std::vector<std::string> arguments = {"--worker-id",   "w-test", "--model",
                                        model_.string(), "--port", "0"};
  // One compute thread: tests share the machine with others.
  arguments.insert(arguments.end(), {"--threads", "1"});
  for (std::string& flag : flags) arguments.push_back(std::move(flag));
  // No file of the user who runs the tests may change them.
  process_ = std::make_unique<ChildProcess>(cpud_program(), std::move(arguments),
                                            std::vector<std::string>{"LLORCH_CONFIG=/dev/null"});
  ASSERT_TRUE(process_->wait_for_err("\"worker_id\"", kPatience)) << process_->err();
  const std::string err = process_->err();
  const std::size_t at = err.find("\"port\":", err.find("\"worker_id\""));
  ASSERT_NE(at, std::string::npos) << err;
  port_ = static_cast<std::uint16_t>(std::stoi(err.substr(at + 7)));
}

bool WorkerFixture::wait_until_healthy() {
  const bool healthy = poll_until(
      kPatience, [&] { return !process_->is_running() || get("/health").status == 200; });
  EXPECT_TRUE(process_->is_running()) << process_->err();
  return healthy && process_->is_running();
}

std::string WorkerFixture::authority() const {
  return fmt::format("127.0.0.1:{}", port_);
}

std::string WorkerFixture::url(std::string_view path) const {
  return fmt::format("http://127.0.0.1:{}{}", port_, path);
}

http::Response WorkerFixture::get(std::string_view path) const {
  http::Client client;
  Result<http::Response> response = client.send(http::ClientRequest(http::Method::Get, url(path)));
  return response.ok() ? response.take() : http::Response(0, "", response.error().message);
}

http::Response WorkerFixture::post(std::string_view path, std::string_view body,
                                   const http::Headers& headers) const {
  http::Client client;
  http::ClientRequest request(http::Method::Post, url(path));
  request.headers = headers;
  request.headers.set("Content-Type", "application/json");
  request.body = body;
  Result<http::Response> response = client.send(request);
  return response.ok() ? response.take() : http::Response(0, "", response.error().message);
}

contract::HealthReport WorkerFixture::health() const {
  const http::Response response = get("/health");
  Result<contract::HealthReport> report = contract::parse_health_report(response.body);
  EXPECT_TRUE(report.ok()) << response.body;
  return report.ok() ? report.take() : contract::HealthReport{};
}

double WorkerFixture::metric(std::string_view name) const {
  const std::string page = get("/metrics").body;
  const std::size_t at = page.find(fmt::format("\n{} ", name));
  EXPECT_NE(at, std::string::npos) << name;
  return at == std::string::npos ? -1 : std::stod(page.substr(at + name.size() + 2));
}

bool WorkerFixture::wait_until_idle(std::chrono::milliseconds patience) const {
  return poll_until(patience, [&] {
    const contract::HealthReport report = health();
    return report.slots_busy == 0 && report.queue_depth == 0 && report.kv_blocks_total > 0 &&
           report.kv_blocks_free == report.kv_blocks_total;
  });
}

bool WorkerFixture::wait_until_busy(int slots) const {
  return poll_until(kPatience, [&] { return health().slots_busy >= slots; });
}

ExecuteOutcome WorkerFixture::execute(std::string_view body, const http::Headers& headers) const {
  http::Client client;
  http::ClientRequest request(http::Method::Post, url("/execute"));
  request.headers = headers;
  request.headers.set("Content-Type", "application/json");
  request.body = body;
  request.total_timeout = std::chrono::milliseconds(0);
  http::SseReader reader;
  ExecuteOutcome outcome;
  const Result<http::Response> response = client.stream(request, [&](std::string_view bytes) {
    std::vector<http::SseEvent> events;
    EXPECT_TRUE(reader.feed(bytes, events).ok());
    for (const http::SseEvent& event : events) take_event(event, outcome);
    return true;
  });
  if (!response.ok()) {
    outcome.body = response.error().message;
    return outcome;
  }
  outcome.status = response->status;
  outcome.body = response->body;
  return outcome;
}

}  // namespace llorch::test
