#include "base/clock.h"
#include "fetch/fetch_text.h"
#include "fetch/transfer_fixture.h"

namespace llorch::fetch {
namespace {

TEST_F(TransferTest, TriesAgainWhatMayPass) {
  const std::vector<std::pair<std::string, SimFault>> faults = {
      {"429", {.status = 429}},         {"500", {.status = 500}},
      {"503", {.status = 503}},         {"416", {.status = 416}},
      {"reset", {.cut_after = 0}},      {"cut", {.cut_after = 30'000}},
      {"stall", {.stall_after = 1000}}, {"silence", {.stall_after = 0}}};
  for (const auto& [name, fault] : faults) {
    for (const int skip : {0, 5}) {
      SCOPED_TRACE(fmt::format("{} after {}", name, skip));
      put(10);
      hub_.forget_requests();
      hub_.clear_faults();
      SimFault here = fault;
      here.path = "/m.gguf";
      here.skip = skip;
      here.times = 3;
      hub_.add_fault(here);
      expect_right(fetch());
      EXPECT_EQ(num_requests(), 11U + 3U);
      EXPECT_EQ(last_.retries, 3);
      EXPECT_NE(notes_.find("waiting"), std::string::npos);
      fs::remove(target_);
    }
  }
}

TEST_F(TransferTest, KeepsWhatACutConnectionBrought) {
  put(4);
  options_.max_connections = 1;
  hub_.add_fault({.path = "/m.gguf", .only_offset = 0, .stall_after = 50'000});
  expect_right(fetch());
  EXPECT_EQ(hub_.bytes_sent("/m.gguf"), *remote_.size);
  const std::vector<test::SimRequest> requests = hub_.requests("/m.gguf");
  EXPECT_TRUE(std::any_of(requests.begin(), requests.end(), [](const test::SimRequest& request) {
    return request.headers.at("range") == fmt::format("bytes=50000-{}", kRange - 1);
  }));
}

TEST_F(TransferTest, AConnectionThatOnlyTricklesIsCutAndAtLastGivenUp) {
  put(0);
  options_.max_connections = 1;
  options_.min_bytes_per_second = 1000;
  options_.stall_timeout = milliseconds(400);
  // Never silent for the length of a stall, and never done.
  hub_.add_fault({.path = "/m.gguf", .times = kAlways, .bytes_per_second = 10});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_NE(message_.find("less than 1000 bytes a second, 6 times in a row"), std::string::npos)
      << message_;
  EXPECT_EQ(num_requests(), 6U);
  hub_.clear_faults();
  expect_right(fetch());
}

TEST_F(TransferTest, SilenceIsSaidWhileItLasts) {
  put(0);
  options_.wait_shown = milliseconds(100);
  options_.stall_timeout = std::chrono::hours(1);
  for (const bool before_the_head : {true, false}) {
    SCOPED_TRACE(before_the_head);
    SimFault fault{.path = "/m.gguf", .times = kAlways};
    fault.stall_head = before_the_head;
    if (!before_the_head) fault.stall_after = 100;
    hub_.clear_faults();
    hub_.add_fault(fault);
    std::stop_source source;
    TransferProgress seen;
    on_progress_ = [&](const TransferProgress& progress) {
      if (progress.waiting.count() == 0) return;
      seen = progress;
      source.request_stop();
    };
    EXPECT_EQ(expect_failure(fetch(source.get_token())), ErrorCode::Cancelled);
    EXPECT_GE(seen.waiting, milliseconds(100));
    EXPECT_EQ("http://" + seen.waiting_for, hub_.url());
    on_progress_ = {};
  }
  hub_.clear_faults();
  expect_right(fetch());
  EXPECT_EQ(last_.waiting.count(), 0);
}

TEST_F(TransferTest, WaitsAsLongAsTheServerAsks) {
  put(4);
  hub_.add_fault({.path = "/m.gguf", .status = 429, .headers = {{"Retry-After", "1"}}});
  const auto begin = std::chrono::steady_clock::now();
  expect_right(fetch());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(1000));
  EXPECT_EQ(num_requests(), 6U);
  fs::remove(target_);
  hub_.add_fault({.path = "/m.gguf", .status = 503, .headers = {{"Retry-After", "86400"}}});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_NE(message_.find("86400"), std::string::npos) << message_;
}

TEST_F(TransferTest, GivesUpAfterSoManyFailures) {
  put(10);
  hub_.add_fault({.path = "/m.gguf", .times = kAlways, .only_offset = 4 * kRange, .status = 502});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_NE(message_.find("502"), std::string::npos) << message_;
  int tries = 0;
  for (const test::SimRequest& request : hub_.requests("/m.gguf"))
    tries += request.headers.at("range").starts_with(fmt::format("bytes={}-", 4 * kRange)) ? 1 : 0;
  EXPECT_EQ(tries, options_.retry.max_attempts);
  // The next call goes on from there.
  hub_.clear_faults();
  hub_.forget_requests();
  expect_right(fetch());
  EXPECT_EQ(num_requests(), 1U);
}

TEST_F(TransferTest, FailsAtOnceWhatWillNotPass) {
  const std::vector<std::pair<int, ErrorCode>> answers = {{400, ErrorCode::Unavailable},
                                                          {401, ErrorCode::Unauthorized},
                                                          {403, ErrorCode::Forbidden},
                                                          {404, ErrorCode::NotFound},
                                                          {410, ErrorCode::NotFound}};
  for (const auto& [status, code] : answers) {
    put(2);
    hub_.clear_faults();
    hub_.forget_requests();
    hub_.add_fault({.path = "/m.gguf",
                    .times = kAlways,
                    .status = status,
                    .headers = {{"X-Error-Message", "because"}}});
    EXPECT_EQ(expect_failure(fetch()), code);
    EXPECT_EQ(num_requests(), 1U);
    EXPECT_NE(message_.find(std::to_string(status)), std::string::npos) << message_;
    EXPECT_NE(message_.find("because"), std::string::npos) << message_;
  }
}

TEST_F(TransferTest, NobodyListeningIsAnErrorAfterAllAttempts) {
  put(1);
  remote_.url = "http://127.0.0.1:1/m.gguf";
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_NE(message_.find("6 times in a row"), std::string::npos) << message_;
}

TEST(FetchText, WaitsAsLongAsTheServerAsks) {
  test::HubSimulator hub;
  hub.put_file("/list", {.content = "all of it"});
  hub.add_fault({.path = "/list", .times = 2, .status = 429, .headers = {{"Retry-After", "70"}}});
  const base::ManualClock clock;
  const auto begin = clock.now();
  TextRequest request;
  request.request.url = hub.url() + "/list";
  request.max_bytes = 100;
  const Result<TextAnswer> answer = fetch_text(request, {.clock = &clock}, {}, {});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "all of it");
  EXPECT_GE(clock.now() - begin, std::chrono::seconds(140));
  EXPECT_LT(clock.now() - begin, std::chrono::seconds(150));
}

}  // namespace
}  // namespace llorch::fetch
