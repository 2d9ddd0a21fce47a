// The manager as a process against strangers: many connections, web pages, forged callbacks.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "pool_cli/pool_home.h"
#include "support/idle_sockets.h"

namespace llorch::test {
namespace {

using http::Method;
using ::testing::HasSubstr;

class PoolDoors : public ::testing::Test {
 protected:
  // With this limit of descriptors, soft and hard; 0: what we have.
  void serve(int descriptors = 0) {
    const std::string limit = descriptors > 0 ? fmt::format("ulimit -n {}; ", descriptors) : "";
    manager_ = std::make_unique<ChildProcess>(
        "/bin/sh",
        std::vector<std::string>{"-c",
                                 limit + "exec " + POOL_MANAGERD + " --port 0 --log-format json"},
        home_.environment());
    ASSERT_TRUE(eventually([this] { return !home_.url().empty(); })) << manager_->err();
    port_ = static_cast<std::uint16_t>(std::stoi(home_.url().substr(home_.url().rfind(':') + 1)));
  }
  int status_of(Method method, std::string_view path,
                std::initializer_list<std::pair<std::string, std::string>> headers = {},
                std::string body = {}) {
    http::ClientRequest request(method, home_.url() + std::string(path));
    for (const auto& [name, value] : headers) request.headers.add(name, value);
    request.body = std::move(body);
    return home_.status_of(request);
  }

  PoolHome home_;
  std::unique_ptr<ChildProcess> manager_;
  std::uint16_t port_ = 0;
};

TEST_F(PoolDoors, ThousandsOfIdleConnectionsEndNeitherItNorItsWorkers) {
  constexpr std::size_t kIdle = 4300;
  if (!allow_descriptors(kIdle + 200))
    GTEST_SKIP() << "SKIPPED: RLIMIT_NOFILE is too low for " << kIdle << " sockets";
  serve();
  ASSERT_EQ(home_.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
  const contract::PoolWorker before = home_.workers().at(0);
  const IdleSockets idle(port_, kIdle);
  ASSERT_EQ(idle.num_connected(), kIdle);
  const IdleSockets at_worker(
      static_cast<std::uint16_t>(std::stoi(before.uri.substr(before.uri.rfind(':') + 1))), 1500);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(status_of(Method::Get, "/health"), 200);
  const contract::PoolWorker after = home_.workers().at(0);
  EXPECT_EQ(after.pid, before.pid);
  EXPECT_EQ(after.state, contract::PoolWorkerState::Ready) << after.reason;
  EXPECT_TRUE(manager_->is_running());
}

TEST_F(PoolDoors, ALowLimitOfDescriptorsIsSurvived) {
  serve(200);
  ASSERT_EQ(home_.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
  const contract::PoolWorker before = home_.workers().at(0);
  const IdleSockets idle(port_, 600);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(status_of(Method::Get, "/health"), 200) << i;
  // Several rounds of probes, with every place taken.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < until)
    ASSERT_EQ(status_of(Method::Get, "/v2/workers"), 200);
  const contract::PoolWorker after = home_.workers().at(0);
  EXPECT_EQ(after.pid, before.pid);
  EXPECT_EQ(after.state, contract::PoolWorkerState::Ready) << after.reason;
  EXPECT_TRUE(manager_->is_running());
}

TEST_F(PoolDoors, PagesCannotDriveIt) {
  serve();
  const std::string start = R"({"backend":"cpu","model":"builtin"})";
  for (const char* path : {"/v2/shutdown", "/v2/workers/start"}) {
    EXPECT_EQ(status_of(Method::Post, path, {{"Content-Type", "text/plain"}}, start), 415) << path;
    EXPECT_EQ(status_of(Method::Post, path, {{"Origin", "https://evil.example"}}, start), 403);
    EXPECT_EQ(status_of(Method::Post, path, {{"Origin", "null"}}, start), 403);
    EXPECT_EQ(status_of(Method::Post, path, {{"Sec-Fetch-Site", "cross-site"}}, start), 403);
  }
  EXPECT_EQ(status_of(Method::Get, "/v2/state", {{"Sec-Fetch-Site", "cross-site"}}), 403);
  EXPECT_EQ(home_.workers().size(), 0U);
  EXPECT_EQ(status_of(Method::Get, "/health"), 200);
}

TEST_F(PoolDoors, AForgedCallbackChangesNothing) {
  serve();
  ASSERT_EQ(home_.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
  const contract::PoolWorker before = home_.workers().at(0);
  const std::string forged = fmt::format(
      R"({{"worker_id":"{}","uri":"http://203.0.113.7:{}","model_ref":"m","memory_bytes":1,"memory_architecture":"cpu",
"worker_type":"llorch-cpud","capabilities":["text-gen"],"version":"1"}})",
      before.id, before.uri.substr(before.uri.rfind(':') + 1));
  const std::string path = "/v2/internal/workers/ready";
  EXPECT_EQ(status_of(Method::Post, path, {}, forged), 403);
  EXPECT_EQ(status_of(Method::Post, path, {{"X-Llorch-Worker-Mark", "guess"}}, forged), 403);
  EXPECT_EQ(status_of(Method::Post, path, {}, std::string(100'000, ' ')), 413);
  EXPECT_EQ(home_.workers().at(0).uri, before.uri);
}

}  // namespace
}  // namespace llorch::test
