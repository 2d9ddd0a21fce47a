#include "fetch/retry.h"

#include <gtest/gtest.h>

#include "fetch/fetch_answer.h"

namespace llorch::fetch {
namespace {

using std::chrono::milliseconds;

TEST(ContentRange, ReadsWhatServersSend) {
  const auto range = parse_content_range("bytes 5-9/100");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 5);
  EXPECT_EQ(range->last, 9);
  EXPECT_EQ(range->total, 100);
  EXPECT_FALSE(parse_content_range("bytes 5-9/*")->total);
  for (const char* bad :
       {"", "bytes", "bytes 5/9", "bytes 9-5/100", "bytes 5-9/9", "bytes -5-9/10", "bytes 5-9/x",
        "items 5-9/100", "bytes */100", "bytes 99999999999999999999-9/100"}) {
    EXPECT_FALSE(parse_content_range(bad)) << bad;
  }
}

TEST(Retry, PausesDoubleWithinBoundsAndFollowTheSeed) {
  RetryPolicy policy;
  policy.max_attempts = 100;
  policy.jitter_seed = 1;
  RetryPolicy another = policy;
  another.jitter_seed = 2;
  Retries retries(policy);
  Retries same(policy);
  Retries other(another);
  Attempts attempts;
  Attempts same_attempts;
  Attempts other_attempts;
  bool differs = false;
  for (int failures = 1; failures < 50; ++failures) {
    const milliseconds full =
        std::min(policy.longest_pause, policy.first_pause * (1 << std::min(failures - 1, 10)));
    const milliseconds pause = *retries.fail(attempts, "it", {});
    EXPECT_GE(pause, full / 2);
    EXPECT_LE(pause, full);
    EXPECT_EQ(pause, *same.fail(same_attempts, "it", {}));
    differs = differs || pause != *other.fail(other_attempts, "it", {});
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(retries.count(), 49);
}

TEST(Retry, AServersOwnPauseWinsUnlessItIsTooLong) {
  Retries retries{RetryPolicy()};
  Attempts attempts;
  EXPECT_EQ(*retries.fail(attempts, "host answered 503", std::chrono::seconds(7)),
            milliseconds(7000));
  const auto too_long =
      retries.fail(attempts, "host answered 503", std::chrono::hours(1), "; it is kept");
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().message,
            "host answered 503 and asks to wait 3600 s: try again then; it is kept");
}

TEST(Retry, TheLastFailureIsAnError) {
  RetryPolicy policy;
  policy.max_attempts = 2;
  Retries retries(policy);
  Attempts attempts;
  EXPECT_TRUE(retries.fail(attempts, "it", {}).ok());
  EXPECT_EQ(retries.fail(attempts, "it", {}).error().message,
            "it, 2 times in a row: try again later");
  Attempts others;
  EXPECT_TRUE(retries.fail_at_once(others));
  EXPECT_FALSE(retries.fail_at_once(others));
}

TEST(Retry, ASlowLineIsSharedByItsConnections) {
  const milliseconds window(30'000);
  EXPECT_TRUE(is_too_slow(30, window, 1, 1024)) << "a byte a second";
  EXPECT_TRUE(is_too_slow(30, window, 16, 1024));
  EXPECT_TRUE(is_too_slow(30 * 1024 - 1, window, 1, 1024));
  EXPECT_FALSE(is_too_slow(30 * 1024, window, 1, 1024));
  // A modem of 7 KiB/s with eight connections.
  EXPECT_FALSE(is_too_slow(30 * 7 * 1024 / 8, window, 8, 1024));
  EXPECT_FALSE(is_too_slow(0, window, 1, 0)) << "no minimum";
}

TEST(Retry, OnlyWhatMayPass) {
  for (const int status : {408, 416, 425, 429, 500, 502, 503, 504, 599})
    EXPECT_TRUE(may_pass(status));
  for (const int status : {200, 206, 301, 400, 401, 403, 404, 410, 451})
    EXPECT_FALSE(may_pass(status));
}

TEST(ShownUrl, KeepsSignaturesToItself) {
  EXPECT_EQ(shown_url("https://a/b?Signature=x#y"), "\"https://a/b\"");
  EXPECT_EQ(origin_of("HTTPS://A.example/x"), "https://a.example:443");
  EXPECT_EQ(origin_of("http://a:8080/x"), "http://a:8080");
  EXPECT_EQ(origin_of("ftp://a/x"), "");
}

}  // namespace
}  // namespace llorch::fetch
