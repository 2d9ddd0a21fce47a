#include "base/clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace llorch::base {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(RealClock, SleepsUntilTheTimeIsThere) {
  const Clock& clock = real_clock();
  const Clock::TimePoint until = clock.now() + milliseconds(5);
  EXPECT_TRUE(clock.sleep_until(until, {}));
  EXPECT_GE(clock.now(), until);
}

TEST(RealClock, AStopEndsASleep) {
  const Clock& clock = real_clock();
  std::stop_source stop;
  const Clock::TimePoint begin = clock.now();
  std::jthread stopper([&stop] { stop.request_stop(); });
  EXPECT_FALSE(clock.sleep_for(hours(1), stop.get_token()));
  EXPECT_FALSE(clock.sleep_for(hours(1), stop.get_token()));  // and one that came before it
  EXPECT_LT(clock.now() - begin, hours(1));
}

TEST(ManualClock, GoesOnlyWhereItIsTold) {
  ManualClock clock;
  const Clock::TimePoint begin = clock.now();
  EXPECT_EQ(clock.now(), begin);
  clock.advance(seconds(3));
  EXPECT_EQ(clock.now(), begin + seconds(3));
}

TEST(ManualClock, WhoSleepsMovesIt) {
  const ManualClock clock;
  const Clock::TimePoint begin = clock.now();
  EXPECT_TRUE(clock.sleep_for(hours(2), {}));
  EXPECT_EQ(clock.now(), begin + hours(2));
  EXPECT_TRUE(clock.sleep_until(begin, {}));  // long over: it does not go back
  EXPECT_EQ(clock.now(), begin + hours(2));
}

TEST(ManualClock, AStoppedSleepMovesNothing) {
  const ManualClock clock;
  const Clock::TimePoint begin = clock.now();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(clock.sleep_for(hours(2), stop.get_token()));
  EXPECT_EQ(clock.now(), begin);
}

}  // namespace
}  // namespace llorch::base
