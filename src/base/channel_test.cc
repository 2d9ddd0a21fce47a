#include "base/channel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace llorch::base {
namespace {

TEST(Channel, ItemsComeInTheOrderTheyWent) {
  Channel<std::unique_ptr<int>> channel(3);
  EXPECT_TRUE(channel.try_push(std::make_unique<int>(1)));
  EXPECT_TRUE(channel.try_push(std::make_unique<int>(2)));
  EXPECT_TRUE(channel.try_push(std::make_unique<int>(3)));
  EXPECT_EQ(**channel.pop(), 1);
  EXPECT_EQ(**channel.try_pop(), 2);
  EXPECT_EQ(channel.take_all().size(), 1U);
  EXPECT_FALSE(channel.try_pop());
}

TEST(Channel, AFullOneRefuses) {
  Channel<int> channel(2);
  EXPECT_TRUE(channel.try_push(1));
  EXPECT_FALSE(channel.is_full());
  EXPECT_TRUE(channel.try_push(2));
  EXPECT_TRUE(channel.is_full());
  EXPECT_FALSE(channel.try_push(3));
  channel.erase_if([](int item) { return item == 1; });
  EXPECT_TRUE(channel.try_push(4));
  EXPECT_EQ(channel.pop(), 2);
  EXPECT_EQ(channel.pop(), 4);
}

TEST(Channel, APushWaitsForRoom) {
  Channel<int> channel(1);
  ASSERT_TRUE(channel.push(0));
  std::jthread pusher([&channel] {
    for (int i = 1; i < 100; ++i) EXPECT_TRUE(channel.push(i));
  });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(channel.pop(), i);
}

TEST(Channel, AClosedOneGivesWhatItHasAndTakesNothing) {
  Channel<int> channel(2);
  EXPECT_TRUE(channel.try_push(1));
  EXPECT_FALSE(channel.is_closed());
  channel.close();
  channel.close();
  EXPECT_TRUE(channel.is_closed());
  EXPECT_FALSE(channel.try_push(2));
  EXPECT_FALSE(channel.push(2));
  EXPECT_EQ(channel.pop(), 1);
  EXPECT_FALSE(channel.pop());
}

TEST(Channel, APopWaitsNoLongerThanItMay) {
  using Clock = std::chrono::steady_clock;
  Channel<int> channel(1);
  const auto deadline = Clock::now() + std::chrono::milliseconds(20);
  EXPECT_FALSE(channel.pop_until(deadline));
  EXPECT_GE(Clock::now(), deadline);
  ASSERT_TRUE(channel.try_push(1));
  EXPECT_EQ(channel.pop_until(deadline), 1) << "what is there needs no time";
  const auto never = Clock::now() + std::chrono::hours(1);
  std::jthread pusher([&channel] { EXPECT_TRUE(channel.push(2)); });
  EXPECT_EQ(channel.pop_until(never), 2);
  std::jthread closer([&channel] { channel.close(); });
  EXPECT_FALSE(channel.pop_until(never));
}

TEST(Channel, ClearingDropsWhatWaits) {
  Channel<std::shared_ptr<int>> channel(2);
  const auto item = std::make_shared<int>(1);
  EXPECT_TRUE(channel.try_push(item));
  channel.close_and_clear();
  EXPECT_EQ(item.use_count(), 1);
  EXPECT_FALSE(channel.pop());
}

TEST(Channel, ClosingWakesThoseWhoWait) {
  Channel<int> empty(1);
  Channel<int> full(1);
  ASSERT_TRUE(full.try_push(1));
  std::jthread popper([&empty] { EXPECT_FALSE(empty.pop()); });
  std::jthread pusher([&full] { EXPECT_FALSE(full.push(2)); });
  empty.close();
  full.close();
}

TEST(Channel, ManyPushAndManyPopAndNothingIsLost) {
  constexpr int kThreads = 3;
  constexpr int kItems = 2'000;
  Channel<int> channel(8);
  std::vector<std::vector<int>> taken(kThreads);
  {
    std::vector<std::jthread> poppers;
    for (std::vector<int>& mine : taken) {
      poppers.emplace_back([&channel, &mine] {
        while (const std::optional<int> item = channel.pop()) mine.push_back(*item);
      });
    }
    {
      std::vector<std::jthread> pushers;
      for (int thread = 0; thread < kThreads; ++thread) {
        pushers.emplace_back([&channel, thread] {
          for (int i = 0; i < kItems; ++i) EXPECT_TRUE(channel.push(thread * kItems + i));
        });
      }
    }
    channel.close();
  }
  std::vector<int> all;
  for (const std::vector<int>& some : taken) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), std::size_t{kThreads} * kItems);
  for (int i = 0; i < kThreads * kItems; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
}

}  // namespace
}  // namespace llorch::base
