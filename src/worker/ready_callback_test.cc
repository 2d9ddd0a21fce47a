#include "worker/ready_callback.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "http/test_server.h"

namespace llorch::worker {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

contract::ReadyCallback some_callback() {
  contract::ReadyCallback callback;
  callback.worker_id = "w";
  return callback;
}

TEST(ReadyCallback, RetriesUntilItIsHeard) {
  std::atomic<int> attempts = 0;
  http::Router router;
  router.add(http::Method::Post, "/ready",
             [&](const http::Request& request) -> Result<http::Response> {
               EXPECT_TRUE(contract::parse_ready_callback(request.body).ok());
               EXPECT_EQ(request.headers.find(contract::kWorkerMarkHeader), "m4rk");
               return http::Response(++attempts < 3 ? 503 : 204, "text/plain", "");
             });
  const auto server = http::test::start(std::move(router));
  const base::ManualClock clock;
  const auto begin = clock.now();
  const Status sent = send_ready_callback(fmt::format("http://127.0.0.1:{}/ready", server->port()),
                                          some_callback(), "m4rk", {}, {}, clock);
  EXPECT_TRUE(sent.ok()) << sent.error().message;
  EXPECT_EQ(attempts, 3);
  EXPECT_EQ(clock.now() - begin, milliseconds(250 + 500));
}

TEST(ReadyCallback, GivesUpAndSaysWhy) {
  std::uint16_t dead_port = 0;
  { dead_port = http::test::start(http::Router())->port(); }
  const base::ManualClock clock;
  const auto begin = clock.now();
  const Status down = send_ready_callback(fmt::format("http://127.0.0.1:{}/r", dead_port),
                                          some_callback(), "", {}, {}, clock);
  EXPECT_LT(clock.now() - begin, milliseconds(60'000));
  EXPECT_GT(clock.now() - begin, milliseconds(50'000));  // a further pause would have been too long
  ASSERT_FALSE(down.ok());
  EXPECT_EQ(down.error().code, ErrorCode::Unavailable);
  EXPECT_THAT(down.error().message, HasSubstr(fmt::format("{}", dead_port)));

  const auto server = http::test::start(http::Router());
  const Status missing = send_ready_callback(fmt::format("http://127.0.0.1:{}/r", server->port()),
                                             some_callback(), "", {}, {}, clock);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("404"));
}

TEST(ReadyCallback, StopsWhenAskedTo) {
  std::uint16_t dead_port = 0;
  { dead_port = http::test::start(http::Router())->port(); }
  std::stop_source stop;
  CallbackTiming timing;
  timing.first_pause = milliseconds(60'000);
  std::thread stopper([&] { stop.request_stop(); });
  const Status stopped = send_ready_callback(fmt::format("http://127.0.0.1:{}/r", dead_port),
                                             some_callback(), "", timing, stop.get_token());
  stopper.join();
  ASSERT_FALSE(stopped.ok());
}

TEST(ReadyCallback, KnowsTheTestMode) {
  EXPECT_TRUE(is_test_callback("http://localhost:9999/v2/ready"));
  EXPECT_FALSE(is_test_callback("http://localhost:9998/v2/ready"));
  EXPECT_FALSE(is_test_callback("http://127.0.0.1:9999/"));
  EXPECT_FALSE(is_test_callback("nonsense"));
}

}  // namespace
}  // namespace llorch::worker
