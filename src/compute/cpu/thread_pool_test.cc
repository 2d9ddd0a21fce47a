#include "compute/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
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

TEST(ThreadPool, PiecesAreOfNearlyEqualSizeAndClaimedOnce) {
  ThreadPool pool(3);
  for (const std::int64_t pieces : {1, 2, 7, 100, 100000}) {
    std::vector<std::atomic<int>> visits(100);
    std::atomic<int> bodies = 0;
    pool.share_out(100, pieces, [&](int, ThreadPool::Pieces& mine) {
      ++bodies;
      std::int64_t begin = 0;
      std::int64_t end = 0;
      while (mine.next(&begin, &end)) {
        const std::int64_t size = 100 / std::min<std::int64_t>(pieces, 100);
        EXPECT_TRUE(end - begin == size || end - begin == size + 1) << begin << " to " << end;
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      }
      EXPECT_FALSE(mine.next(&begin, &end)) << "none after the last";
    });
    for (const std::atomic<int>& visit : visits) EXPECT_EQ(visit.load(), 1);
    EXPECT_LE(bodies.load(), 3);
  }
}

// A thread that is held up in a piece holds up nothing else: the others do the rest.
TEST(ThreadPool, ALateThreadCostsOnePiece) {
  ThreadPool pool(2);
  constexpr std::int64_t kPieces = 16;
  std::atomic<std::int64_t> by_others = 0;
  std::atomic<int> late = -1;
  pool.share_out(kPieces, kPieces, [&](int thread, ThreadPool::Pieces& mine) {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    while (mine.next(&begin, &end)) {
      if (begin == 0) {
        late = thread;
        while (by_others.load() < kPieces - 1) std::this_thread::yield();
      } else {
        EXPECT_NE(thread, late.load()) << "has only begun with the first piece";
        ++by_others;
      }
    }
  });
  EXPECT_EQ(by_others.load(), kPieces - 1);
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
