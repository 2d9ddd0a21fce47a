#include "http/guard.h"

#include <gtest/gtest.h>

namespace llorch::http {
namespace {

Headers with(std::string name, std::string value) {
  Headers headers;
  headers.add(std::move(name), std::move(value));
  return headers;
}

TEST(CheckHead, AnAbsoluteTargetNamesTheHostOfTheHeader) {
  const Headers headers = with("Host", "localhost:8000");
  const HeadLimits limits{.target_bytes = 100, .fields = 10};
  for (const std::string_view good :
       {"/a", "http://localhost:8000/a", "http://LOCALHOST:8000", "http://localhost:8000?a"})
    EXPECT_FALSE(check_head({.target = good, .headers = headers}, limits)) << good;
  for (const std::string_view bad : {"http://evil.example/a", "http://localhost/a", "http:///a",
                                     "http://localhost:8000@evil.example/", "http://"})
    EXPECT_TRUE(check_head({.target = bad, .headers = headers}, limits)) << bad;
  EXPECT_TRUE(
      check_head({.is_http11 = false, .target = "http://h/a", .headers = Headers()}, limits));
}

TEST(CorrelationId, KeepsAGoodOneAndReplacesABadOne) {
  EXPECT_EQ(correlation_id_of(with("x-correlation-id", "Job-7")), "Job-7");
  const std::string longest(64, 'a');
  EXPECT_EQ(correlation_id_of(with("X-Correlation-Id", longest)), longest);
  for (const std::string& bad : {std::string(), longest + "a", std::string("a_b"),
                                 std::string("a\nb"), std::string("\xC3\xA9")}) {
    const std::string made = correlation_id_of(with("X-Correlation-Id", bad));
    EXPECT_EQ(made.size(), 32u) << bad;
    EXPECT_EQ(made.find_first_not_of("0123456789abcdef"), std::string::npos) << made;
  }
  EXPECT_NE(correlation_id_of({}), correlation_id_of({}));
}

TEST(Deadline, IsReadAndComparedWithNow) {
  const SystemTime now{std::chrono::milliseconds(1000)};
  EXPECT_EQ(deadline_of({}, now).take(), std::nullopt);
  EXPECT_EQ(deadline_of(with("X-Deadline", "1001"), now).take(),
            SystemTime{std::chrono::milliseconds(1001)});
  const auto past = deadline_of(with("X-Deadline", "900"), now);
  ASSERT_FALSE(past.ok());
  EXPECT_EQ(past.error().code, ErrorCode::DeadlineExceeded);
  EXPECT_NE(past.error().message.find("100 ms"), std::string::npos);
  EXPECT_TRUE(deadline_of(with("X-Deadline", "9000000000000"), now).ok());
  for (const char* bad :
       {"", "soon", "12x", "-5", "1e9", "9000000000001", "99999999999999999999999"}) {
    const auto refused = deadline_of(with("X-Deadline", bad), now);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::InvalidArgument) << bad;
  }
}

TEST(IsAuthorized, WantsExactlyTheToken) {
  constexpr std::string_view kToken = "0123456789abcdef";
  EXPECT_TRUE(is_authorized(with("Authorization", "Bearer 0123456789abcdef"), kToken));
  EXPECT_TRUE(is_authorized(with("authorization", "bearer 0123456789abcdef"), kToken));
  for (const char* bad :
       {"", "Bearer", "Bearer ", "0123456789abcdef", "Basic 0123456789abcdef",
        "Bearer 0123456789abcdeF", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0",
        "Bearer 0123456789abcdef0123456789abcdef", "Bearer  0123456789abcdef"}) {
    EXPECT_FALSE(is_authorized(with("Authorization", bad), kToken)) << bad;
  }
  EXPECT_FALSE(is_authorized({}, kToken));
  EXPECT_FALSE(is_authorized(with("Authorization", "Bearer "), ""))
      << "an empty token opens nothing";
}

TEST(NameKey, TellsKeysApartAndKeepsThemSecret) {
  // sha256("0123456789abcdef") begins 9f9f5111.
  EXPECT_EQ(name_key(with("Authorization", "Bearer 0123456789abcdef")), "token:9f9f51");
  EXPECT_NE(name_key(with("Authorization", "Bearer 0123456789abcdeg")), "token:9f9f51");
  EXPECT_EQ(name_key({}), "none");
}

TEST(LineLimit, CountsWhatItLeavesOut) {
  LineLimit limit(2);
  const auto now = std::chrono::steady_clock::now();
  EXPECT_EQ(limit.take(now), 0u);
  EXPECT_EQ(limit.take(now), 0u);
  EXPECT_EQ(limit.take(now), std::nullopt);
  EXPECT_EQ(limit.take(now), std::nullopt);
  EXPECT_EQ(limit.take(now + std::chrono::seconds(1)), 2u);
  EXPECT_EQ(limit.take(now + std::chrono::seconds(1)), 0u);
}

}  // namespace
}  // namespace llorch::http
