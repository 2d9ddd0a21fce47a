// One door for each host, with the real programs: what a worker says through the pool is what it
// says itself, and its state is told without asking twice.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <regex>
#include <thread>

#include "contract/pool_state.h"
#include "contract/worker_info.h"
#include "http/sse.h"
#include "http/url.h"
#include "pool/run.h"
#include "pool_cli/pool_home.h"

namespace llorch::test {
namespace {

using ::testing::HasSubstr;

// Times and the job's own name differ from run to run.
std::string without_times(std::string text) {
  static const std::regex times(R"re("(started_at|job_id)":"[^"]*"|"[a-z_]*_ms":[0-9.e+-]*)re");
  return std::regex_replace(text, times, "_");
}

class PoolRelay : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> arguments = {"--port", "0", "--label", "zone=attic"};
    manager_ = std::make_unique<ChildProcess>(POOL_MANAGERD, arguments, home_.environment());
    ASSERT_TRUE(eventually([this] { return !home_.url().empty(); })) << manager_->err();
    ASSERT_EQ(home_.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
    const std::vector<contract::PoolWorker> workers = home_.workers();
    ASSERT_EQ(workers.size(), 1U);
    worker_ = workers.front();
    base::Home home;
    home.state = home_.path();
    const auto address = pool::read_pool_address(home);
    ASSERT_TRUE(address.has_value());
    socket_ = address->socket;
  }

  http::ClientRequest execute(const std::string& base, int max_tokens) const {
    http::ClientRequest request(http::Method::Post, base + "/execute");
    request.body = fmt::format(
        R"({{"job_id":"j{}","prompt":"Once upon a time","max_tokens":{},"temperature":0,"seed":7}})",
        ++jobs_, max_tokens);
    return request;
  }
  std::string through() const {
    return fmt::format("{}/v2/workers/{}/api", home_.url(), worker_.id);
  }
  contract::PoolState state(std::string_view query = {}) {
    http::ClientRequest request(http::Method::Get,
                                http::unix_url(socket_) + "/v2/state" + std::string(query));
    const Result<http::Response> response = client_.send(request);
    EXPECT_TRUE(response.ok()) << response.error().message;
    if (!response.ok()) return {};
    const Result<json::Value> value = json::parse(response->body);
    const Result<contract::PoolState> read =
        contract::parse_pool_state(value.ok() ? *value : json::Value());
    EXPECT_TRUE(read.ok()) << response->body;
    return read.ok() ? *read : contract::PoolState();
  }
  std::int64_t slots_busy() {
    const Result<http::Response> response =
        client_.send({http::Method::Get, worker_.uri + "/health"});
    if (!response.ok()) return -1;
    const Result<contract::HealthReport> report = contract::parse_health_report(response->body);
    return report.ok() ? report->slots_busy : -1;
  }

  PoolHome home_;
  http::Client client_;
  std::unique_ptr<ChildProcess> manager_;
  contract::PoolWorker worker_;
  std::string socket_;
  mutable int jobs_ = 0;
};

TEST_F(PoolRelay, AStreamThroughThePoolIsTheWorkersOwn) {
  const Result<http::Response> direct = client_.send(execute(worker_.uri, 40));
  const Result<http::Response> relayed = client_.send(execute(through(), 40));
  const Result<http::Response> by_socket = client_.send(
      execute(fmt::format("{}/v2/workers/{}/api", http::unix_url(socket_), worker_.id), 40));
  ASSERT_TRUE(direct.ok() && relayed.ok() && by_socket.ok());
  EXPECT_EQ(relayed->status, 200);
  EXPECT_THAT(direct->body, HasSubstr("event: end"));
  // What the first request computed is cached for the others.
  const std::regex cached(R"re("cached_tokens":[0-9]*)re");
  const auto plain = [&cached](const http::Response& response) {
    return std::regex_replace(without_times(response.body), cached, "_");
  };
  EXPECT_EQ(plain(*relayed), plain(*direct));
  EXPECT_EQ(plain(*by_socket), plain(*direct));
  EXPECT_EQ(relayed->headers.find("Content-Type"), direct->headers.find("Content-Type"));
}

TEST_F(PoolRelay, AClientThatLeavesFreesTheWorkersSlot) {
  int pieces = 0;
  const Result<http::Response> left =
      client_.stream(execute(through(), 480), [&pieces](std::string_view) { return ++pieces < 3; });
  EXPECT_FALSE(left.ok());
  EXPECT_TRUE(eventually([this] { return slots_busy() == 0; }));
}

TEST_F(PoolRelay, AWorkerThatIsKilledCutsItsStream) {
  const std::uint64_t revision = state().revision;
  bool killed = false;
  std::string seen;
  const Result<http::Response> cut =
      client_.stream(execute(through(), 480), [&](std::string_view bytes) {
        seen += bytes;
        if (!std::exchange(killed, true)) ::kill(static_cast<pid_t>(worker_.pid), SIGKILL);
        return true;
      });
  ASSERT_TRUE(killed);
  if (seen.find("event: end") == std::string::npos) {  // it was not through already
    ASSERT_FALSE(cut.ok()) << "an answer that broke off is no whole answer";
    EXPECT_EQ(cut.error().code, ErrorCode::Unavailable) << cut.error().message;
  }
  // The next states say what it died of.
  contract::PoolState now = state(fmt::format("?since={}&wait_ms=20000", revision));
  for (int looks = 0; looks < 20 && now.workers.front().state != contract::PoolWorkerState::Failed;
       ++looks)
    now = state(fmt::format("?since={}&wait_ms=20000", now.revision));
  EXPECT_EQ(now.workers.front().category, contract::ExitCategory::Crash);
  const Result<http::Response> gone = client_.send({http::Method::Get, through() + "/health"});
  EXPECT_EQ(gone->status, 404) << gone->body;
}

TEST_F(PoolRelay, TheStateSaysWhatAFleetNeeds) {
  struct stat info {};
  ASSERT_EQ(::stat(socket_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  contract::PoolState now = state();
  EXPECT_THAT(now.labels, ::testing::ElementsAre("zone=attic"));
  ASSERT_EQ(now.workers.size(), 1U);
  const contract::PoolWorker& worker = now.workers.front();
  EXPECT_NE(worker.start, 0U);
  EXPECT_EQ(worker.model_hash.size(), 32U);
  EXPECT_EQ(worker.device, 0);
  EXPECT_FALSE(worker.build.empty()) << "from the first moment on";
  EXPECT_FALSE(worker.device_class.empty());
  EXPECT_TRUE(worker.can_resume);
  const auto builtin = std::find_if(now.models.begin(), now.models.end(),
                                    [](const auto& model) { return model.id == "builtin"; });
  ASSERT_NE(builtin, now.models.end());
  EXPECT_EQ(builtin->model_hash, worker.model_hash);
  EXPECT_GT(builtin->need_bytes, 0);
  EXPECT_GT(now.devices.front().free_bytes, 0);
  const std::uint32_t before = worker.start;
  ASSERT_EQ(home_.pool({"worker", "restart", worker_.id}).exit_code, 0);
  EXPECT_TRUE(eventually([&] {
    now = state();
    return now.workers.front().state == contract::PoolWorkerState::Ready &&
           now.workers.front().start != before;
  })) << "another process, another birth";
}

}  // namespace
}  // namespace llorch::test
