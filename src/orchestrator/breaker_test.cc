// A worker that fails is set aside and tried again, seen from outside: requests to a whole
// orchestrator with scripted workers.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "http/client.h"
#include "orchestrator/test_fleet.h"

namespace llorch::orchestrator {
namespace {

using test::TestFleet;

constexpr std::chrono::seconds kPatience{120};

class BreakerTrial : public ::testing::Test {
 protected:
  BreakerTrial() { fleet.wait_until_ready(); }

  int ask() {
    http::ClientRequest request(http::Method::Post, fleet.url("/v1/completions"));
    request.body = R"({"model":"story","prompt":"hi","seed":1})";
    const Result<http::Response> answer = client.send(request);
    return answer.ok() ? answer->status : 0;
  }
  std::size_t requests_of(const std::string& worker) const {
    const std::vector<test::Seen> seen = fleet.pool.seen();
    return static_cast<std::size_t>(
        std::count_if(seen.begin(), seen.end(),
                      [&worker](const test::Seen& one) { return one.worker == worker; }));
  }
  bool is_set_aside(const std::string& id) {
    std::promise<bool> promise;
    const bool asked = fleet.core().ask([&](const fleet::Fleet& house, fleet::TimePoint) {
      bool is_closed = false;
      for (const fleet::Worker& worker : house.workers)
        is_closed |= worker.id == id && worker.breaker.is_closed();
      promise.set_value(is_closed);
    });
    return asked && promise.get_future().get();
  }
  // Asks until the condition holds. Everybody gets an answer all the time.
  template <class Condition>
  bool ask_until(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      EXPECT_EQ(ask(), 200);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  TestFleet fleet{{.folder = testing::TempDir() + fmt::format("breaker_{}", ::getpid())}};
  http::Client client;
};

TEST_F(BreakerTrial, AWorkerThatRefusesIsSetAsideAndTriedAgain) {
  for (int i = 0; i < 3; ++i) fleet.pool.script("w0", {.refuse = 503});
  ASSERT_TRUE(ask_until([this] { return is_set_aside("w0"); }));
  EXPECT_EQ(requests_of("w0"), 3U);
  // One request tries it; that one is answered, and it is as good as before.
  ASSERT_TRUE(ask_until([this] { return !is_set_aside("w0"); }));
  EXPECT_EQ(requests_of("w0"), 4U);
}

TEST_F(BreakerTrial, AWorkerThatFailsItsTrialStaysAsideForLonger) {
  for (int i = 0; i < 3; ++i) fleet.pool.script("w0", {.fail_after = 1});
  fleet.pool.script("w0", {.refuse = 503});
  ASSERT_TRUE(ask_until([this] { return is_set_aside("w0"); }));
  const std::size_t before = requests_of("w0");
  ASSERT_TRUE(ask_until([&] { return requests_of("w0") > before; })) << "the trial";
  EXPECT_TRUE(is_set_aside("w0"));
  ASSERT_TRUE(ask_until([this] { return !is_set_aside("w0"); }));
  EXPECT_EQ(requests_of("w0"), before + 2);
}

}  // namespace
}  // namespace llorch::orchestrator
