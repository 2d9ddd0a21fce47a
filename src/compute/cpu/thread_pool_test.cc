#include "compute/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace llorch::compute {
namespace {

TEST(ThreadPool, CoversEveryIndexExactlyOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (std::int64_t count = 0; count < 40; ++count) {
      std::vector<int> visits(static_cast<std::size_t>(count));
      pool.parallel_for(count, [&](int thread, std::int64_t begin, std::int64_t end) {
        EXPECT_TRUE(thread >= 0 && thread < threads);
        EXPECT_LT(begin, end);
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
      EXPECT_EQ(visits, std::vector<int>(static_cast<std::size_t>(count), 1));
    }
  }
}

TEST(ThreadPool, SplitsTheSameWayEveryTime) {
  ThreadPool pool(3);
  const auto split = [&pool] {
    std::vector<std::int64_t> begins(3, -1);
    pool.parallel_for(100, [&](int thread, std::int64_t begin, std::int64_t) {
      begins[static_cast<std::size_t>(thread)] = begin;
    });
    return begins;
  };
  EXPECT_EQ(split(), (std::vector<std::int64_t>{0, 33, 66}));
  EXPECT_EQ(split(), (std::vector<std::int64_t>{0, 33, 66}));
}

// What a loop wrote is there for the next one, thousands of times in a row.
TEST(ThreadPool, LoopsFollowEachOther) {
  ThreadPool pool(4);
  std::vector<std::int64_t> values(64, 0);
  constexpr int kLoops = 3000;
  for (int loop = 0; loop < kLoops; ++loop) {
    pool.parallel_for(64, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        // Reads what another thread wrote in the loop before, at the mirrored place.
        if (loop % 2 == 0) values[static_cast<std::size_t>(i)] += 1;
      }
    });
    pool.parallel_for(32, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::swap(values[static_cast<std::size_t>(i)], values[static_cast<std::size_t>(63 - i)]);
      }
    });
  }
  EXPECT_EQ(values, std::vector<std::int64_t>(64, kLoops / 2));
}

TEST(ThreadPool, StopsWhetherItWorkedOrNot) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool idle(3);
    ThreadPool used(3);
    used.parallel_for(3, [](int, std::int64_t, std::int64_t) {});
  }
}

}  // namespace
}  // namespace llorch::compute
