#include "base/timestamp.h"

#include <gtest/gtest.h>

namespace llorch::base {
namespace {

using std::chrono::milliseconds;
using Time = std::chrono::system_clock::time_point;

TEST(Timestamp, IsUtcWithMilliseconds) {
  EXPECT_EQ(to_rfc3339(Time(milliseconds(1767323045006))), "2026-01-02T03:04:05.006Z");
}

TEST(Timestamp, ReadsBackWhatItWrites) {
  for (const std::int64_t ms : {0LL, 1LL, 951782399999LL, 1767323045006LL, 4102444800000LL}) {
    EXPECT_EQ(parse_rfc3339(to_rfc3339(Time(milliseconds(ms)))), Time(milliseconds(ms))) << ms;
  }
  EXPECT_EQ(parse_rfc3339("2026-01-02T03:04:05Z"), Time(milliseconds(1767323045000)));
}

TEST(Timestamp, AnythingElseIsNothing) {
  for (const char* text : {"", "Z", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02 03:04:05Z",
                           "2026-13-02T03:04:05Z", "2026-02-30T03:04:05Z", "2026-01-02T24:04:05Z",
                           "2026-01-02T03:04:05.00Z", "2026-01-02T03:04:05.00xZ",
                           "2026-01-02T03:04:05+00:00", "-026-01-02T03:04:05Z"}) {
    EXPECT_FALSE(parse_rfc3339(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace llorch::base
