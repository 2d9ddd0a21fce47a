#include "base/owner_loop.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <new>
#include <stdexcept>

#include "base/thread.h"

namespace llorch::base {
namespace {

// Its thread waits, from now on.
void hold_up(OwnerLoop& loop, std::promise<void>& go_on) {
  std::promise<void> begun;
  EXPECT_TRUE(loop.post([&] {
    begun.set_value();
    go_on.get_future().wait();
  }));
  begun.get_future().wait();
}

TEST(OwnerLoop, JobsRunInOrderOnOneThread) {
  std::vector<int> order;  // the loop's
  OwnerLoop loop("test", 100);
  for (int i = 0; i < 100; ++i) {
    while (!loop.post([&order, i] { order.push_back(i); })) std::this_thread::yield();
  }
  const std::thread::id thread = loop.ask([] { return std::this_thread::get_id(); });
  EXPECT_NE(thread, std::this_thread::get_id());
  ASSERT_EQ(loop.ask([&order] { return order.size(); }), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST(OwnerLoop, AShortJobRunsAtOnceWhereNobodyIsBefore) {
  OwnerLoop loop("test", 8);
  loop.ask([] {});
  std::thread::id ran_by;
  // Its thread may be in its turn, and have the job then.
  for (int tries = 0; tries < 1000 && ran_by != std::this_thread::get_id(); ++tries) {
    std::promise<void> done;
    ASSERT_TRUE(loop.run_or_post([&] {
      ran_by = std::this_thread::get_id();
      done.set_value();
    }));
    done.get_future().wait();
  }
  EXPECT_EQ(ran_by, std::this_thread::get_id());
}

TEST(OwnerLoop, AJobThatCannotRunAtOnceKeepsItsPlace) {
  OwnerLoop loop("test", 8);
  std::vector<int> order;
  std::promise<void> go_on;
  hold_up(loop, go_on);
  EXPECT_TRUE(loop.post([&] { order.push_back(1); }));
  EXPECT_TRUE(loop.run_or_post([&] { order.push_back(2); }));
  EXPECT_TRUE(order.empty()) << "somebody else is at it";
  go_on.set_value();
  EXPECT_EQ(loop.ask([&] { return order; }), (std::vector<int>{1, 2}));
  // From inside a job it comes after that job.
  loop.ask([&] {
    EXPECT_TRUE(loop.run_or_post([&] { order.push_back(4); }));
    order.push_back(3);
  });
  EXPECT_EQ(loop.ask([&] { return order; }), (std::vector<int>{1, 2, 3, 4}));
  loop.stop();
  EXPECT_FALSE(loop.run_or_post([] {}));
}

TEST(OwnerLoop, ManyThreadsAreTheOwnerOneAfterTheOther) {
  OwnerLoop loop("test", 100'000);
  int count = 0;  // of whoever owns
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 2000; ++n) EXPECT_TRUE(loop.run_or_post([&count] { ++count; }));
      });
    }
  }
  EXPECT_EQ(loop.ask([&count] { return count; }), 8000);
}

TEST(OwnerLoop, AJobThatThrowsFailsAlone) {
  OwnerLoop loop("test", 8);
  EXPECT_TRUE(loop.post([] { throw std::bad_alloc(); }));
  EXPECT_THROW(loop.ask([]() -> int { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_EQ(loop.ask([] { return 7; }), 7);
}

TEST(OwnerLoop, StopRunsWhatWaitsAndRefusesTheRest) {
  int runs = 0;
  OwnerLoop loop("test", 8);
  std::promise<void> go_on;
  hold_up(loop, go_on);
  EXPECT_TRUE(loop.post([&runs] { ++runs; }));
  EXPECT_TRUE(loop.post([&runs] { ++runs; }));
  go_on.set_value();
  loop.stop();
  EXPECT_EQ(runs, 2);
  EXPECT_FALSE(loop.post([&runs] { ++runs; }));
  loop.stop();
  EXPECT_EQ(runs, 2);
}

TEST(OwnerLoop, AFullQueueRefusesAPostAndHoldsUpAnAsk) {
  OwnerLoop loop("test", 1);
  std::promise<void> go_on;
  hold_up(loop, go_on);
  EXPECT_TRUE(loop.post([] {}));
  EXPECT_FALSE(loop.post([] {}));
  std::jthread asker([&loop] { EXPECT_EQ(loop.ask([] { return 1; }), 1); });
  go_on.set_value();
}

TEST(OwnerLoop, TurnsComeAtTheirTimeAndAfterJobs) {
  int turns = 0;  // the loop's
  std::promise<void> third;
  OwnerLoop loop("test", 8, [&]() -> OwnerLoop::Rest {
    if (++turns == 3) third.set_value();
    if (turns < 3) return {.until = real_clock().now()};
    return {};
  });
  third.get_future().wait();
  EXPECT_EQ(loop.ask([&] { return turns; }), 3);
  EXPECT_GE(loop.ask([&] { return turns; }), 4);  // the first question brought one more
}

TEST(OwnerLoop, ARestUntilTheBeginningOfTimeIsNone) {
  std::promise<void> again;
  const OwnerLoop loop("test", 8, [&again, turns = 0]() mutable -> OwnerLoop::Rest {
    if (++turns == 2) again.set_value();
    return {turns < 2 ? Clock::TimePoint::min() : Clock::TimePoint::max(), {}};
  });
  again.get_future().wait();
}

TEST(OwnerLoop, AReadableFileEndsItsRest) {
  const int file = ::eventfd(0, EFD_CLOEXEC);
  std::promise<void> seen;
  {
    OwnerLoop loop("test", 8, [&, turns = 0]() mutable -> OwnerLoop::Rest {
      if (++turns == 2) seen.set_value();
      OwnerLoop::Rest rest;
      if (turns < 2) rest.files = {file};
      return rest;
    });
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(file, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    seen.get_future().wait();
  }
  ::close(file);
}

TEST(OwnerLoop, ATurnThatThrowsIsTakenAgain) {
  std::promise<void> again;
  OwnerLoop loop("test", 8, [&again, turns = 0]() mutable -> OwnerLoop::Rest {
    if (++turns == 1) throw std::runtime_error("no");
    if (turns == 2) again.set_value();
    return {};
  });
  again.get_future().wait();
  EXPECT_EQ(loop.ask([] { return 7; }), 7);
}

TEST(OwnerLoopDeathTest, TheOwnerMayNotWaitForItself) {
  EXPECT_DEATH(
      {
        OwnerLoop loop("test", 8);
        loop.ask([&loop] { return loop.ask([] { return 1; }); });
      },
      "wait for itself");
}

TEST(ThreadDeathTest, WhatEscapesIsLoggedBeforeTheEnd) {
  EXPECT_DEATH(start_thread("tester", [] { throw std::runtime_error("no milk"); }),
               "tester.*no milk");
}

TEST(Thread, HasItsNameAndItsStopToken) {
  std::promise<std::string> name;
  std::jthread thread = start_thread("a-long-name-of-a-thread", [&](const std::stop_token& stop) {
    std::array<char, 16> text{};
    ::pthread_getname_np(::pthread_self(), text.data(), text.size());
    name.set_value(text.data());
    while (!stop.stop_requested()) std::this_thread::yield();
  });
  EXPECT_EQ(name.get_future().get(), "a-long-name-of-");
}  // the destructor asks it to stop and joins it

}  // namespace
}  // namespace llorch::base
