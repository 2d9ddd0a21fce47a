#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace llorch::base {
namespace {

class Counter {
 public:
  void add() LLORCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  // False when it was not reached before `deadline`.
  bool wait_for(int count, std::chrono::steady_clock::time_point deadline) LLORCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (count_ < count) {
      if (!changed_.wait_until(mutex_, deadline)) return false;
    }
    return true;
  }
  void wait_for(int count) LLORCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (count_ < count) changed_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int count_ LLORCH_GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, OneThreadAtATime) {
  constexpr int kThreads = 4;
  constexpr int kAdds = 5'000;
  Counter counter;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&counter] {
        for (int n = 0; n < kAdds; ++n) counter.add();
      });
    }
    counter.wait_for(kThreads * kAdds);
  }
  EXPECT_FALSE(counter.wait_for(kThreads * kAdds + 1, std::chrono::steady_clock::now()));
}

TEST(CondVar, AWaitEndsAtItsDeadline) {
  Counter counter;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  EXPECT_FALSE(counter.wait_for(1, deadline));
  EXPECT_GE(std::chrono::steady_clock::now(), deadline);
}

TEST(CondVar, TheMutexIsHeldAgainAfterAWait) {
  Counter counter;
  std::jthread adder([&counter] { counter.add(); });
  counter.wait_for(1);
  adder.join();
  counter.add();  // would never return if the wait had kept or lost the mutex
  counter.wait_for(2);
}

}  // namespace
}  // namespace llorch::base
