#include "catalog/rate_meter.h"

#include <gtest/gtest.h>

namespace llorch::catalog {
namespace {

TEST(RateMeter, MeasuresTheLastSeconds) {
  RateMeter rate;
  RateMeter::Time now{};
  EXPECT_EQ(rate.per_second(), 0);
  std::int64_t done = 1'000'000;  // an earlier call's
  for (int i = 0; i < 100; ++i) {
    rate.add(now, done);
    now += std::chrono::milliseconds(100);
    done += 10;
  }
  EXPECT_NEAR(rate.per_second(), 100, 1);
  for (int i = 0; i < 100; ++i) {
    rate.add(now, done);
    now += std::chrono::milliseconds(100);
    done += 50;
  }
  EXPECT_NEAR(rate.per_second(), 500, 5);
  rate.add(now, 3);
  EXPECT_EQ(rate.per_second(), 0);
}

}  // namespace
}  // namespace llorch::catalog
