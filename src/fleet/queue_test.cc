// The order of waiting jobs: by hand, against a slow queue that scans, and at size.
#include "fleet/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "fleet/dice.h"

namespace llorch::fleet {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;

const TimePoint kStart{seconds(1000)};

struct Bench {
  void add(JobIndex job, KeyIndex key, JobClass cls = JobClass::Interactive, double cost = 1) {
    queue.push({.job = job, .line = 0, .key = key, .cls = cls, .cost_s = cost, .submitted = now},
               now);
    costs[job] = {key, cost};
  }
  JobIndex serve() {
    const JobIndex job = queue.front(0, now);
    if (job == kNone) return kNone;
    EXPECT_TRUE(queue.take(job));
    queue.charge(costs[job].first, costs[job].second);
    return job;
  }
  std::vector<JobIndex> serve_all() {
    std::vector<JobIndex> order;
    for (JobIndex job = serve(); job != kNone; job = serve()) order.push_back(job);
    return order;
  }

  Queue queue;
  TimePoint now = kStart;
  std::map<JobIndex, std::pair<KeyIndex, double>> costs;
};

TEST(Queue, ServesTheJobsOfOneKeyInTheirOrder) {
  Bench bench;
  for (JobIndex job = 0; job < 4; ++job) bench.add(job, 0);
  EXPECT_THAT(bench.serve_all(), ElementsAre(0, 1, 2, 3));
}

TEST(Queue, ServesInteractiveBeforeBatch) {
  Bench bench;
  bench.add(0, 0, JobClass::Batch);
  bench.add(1, 0);
  bench.add(2, 1, JobClass::Batch);
  bench.add(3, 1);
  EXPECT_THAT(bench.serve_all(), ElementsAre(1, 3, 0, 2));
}

TEST(Queue, ABatchJobCompetesAsIfItHadComeAMinuteLater) {
  Bench bench;
  bench.add(0, 0, JobClass::Batch);
  bench.now += seconds(59);
  bench.add(1, 0);
  bench.now += seconds(2);
  bench.add(2, 0);
  EXPECT_THAT(bench.serve_all(), ElementsAre(1, 0, 2));
}

TEST(Queue, KeysShareSlotTimeNotRequests) {
  Bench bench;
  for (JobIndex job = 0; job < 8; ++job) bench.add(job, 0, JobClass::Interactive, 4);
  for (JobIndex job = 10; job < 26; ++job) bench.add(job, 1, JobClass::Interactive, 1);
  double spent[2] = {0, 0};
  for (int i = 0; i < 15; ++i) {
    const JobIndex job = bench.serve();
    spent[job >= 10 ? 1 : 0] += bench.costs[job].second;
    EXPECT_LE(std::abs(spent[0] - spent[1]), 4) << "after " << i;
  }
}

TEST(Queue, AKeyThatWasAwayHasSavedNothing) {
  Bench bench;
  for (JobIndex job = 0; job < 100; ++job) bench.add(job, 0);
  for (int i = 0; i < 50; ++i) bench.serve();
  for (JobIndex job = 100; job < 110; ++job) bench.add(job, 1);
  int of_new = 0;
  for (int i = 0; i < 10; ++i) of_new += bench.serve() >= 100 ? 1 : 0;
  EXPECT_EQ(of_new, 5);
}

TEST(Queue, ACorrectionMovesAKey) {
  Bench bench;
  bench.add(0, 0);
  bench.add(1, 1);
  bench.queue.charge(0, 10);
  EXPECT_EQ(bench.queue.front(0, bench.now), 1U);
  bench.queue.charge(0, -10.5);
  EXPECT_EQ(bench.queue.front(0, bench.now), 0U);
}

TEST(Queue, MoversComeFirstShortestReplayFirst) {
  Bench bench;
  bench.add(0, 0);
  bench.queue.push_mover({.job = 1, .line = 0, .key = 0}, 500);
  bench.queue.push_mover({.job = 2, .line = 0, .key = 0}, 20);
  EXPECT_EQ(bench.queue.find_place(2).position, 1U);
  EXPECT_THAT(bench.serve_all(), ElementsAre(2, 1, 0));
}

TEST(Queue, ARefusedJobStandsBeforeTheOthersOfItsKey) {
  Bench bench;
  bench.add(0, 0);
  bench.add(1, 0);
  bench.queue.push_front({.job = 2, .line = 0, .key = 0}, bench.now);
  bench.queue.push_front(
      {.job = 3, .line = 0, .key = 0, .cls = JobClass::Batch, .submitted = bench.now}, bench.now);
  EXPECT_EQ(bench.queue.find_place(0).position, 2U);
  EXPECT_THAT(bench.serve_all(), ElementsAre(2, 0, 1, 3));
}

TEST(Queue, LinesDoNotSeeEachOther) {
  Queue queue;
  queue.push({.job = 0, .line = 3, .key = 0}, kStart);
  EXPECT_EQ(queue.front(0, kStart), kNone);
  EXPECT_EQ(queue.front(2, kStart), kNone);
  EXPECT_EQ(queue.front(3, kStart), 0U);
  EXPECT_FALSE(queue.take(7));
}

TEST(Queue, SaysHowManyStandBefore) {
  Bench bench;
  for (JobIndex job = 0; job < 10; ++job) bench.add(job, 0, JobClass::Interactive, 2);
  EXPECT_EQ(bench.queue.find_place(0).position, 1U);
  EXPECT_EQ(bench.queue.find_place(9).position, 10U);
  EXPECT_DOUBLE_EQ(bench.queue.find_place(9).ahead_s, 18);
  EXPECT_EQ(bench.queue.place_at_end(0, 0, JobClass::Interactive).position, 11U);
  const QueuePlace other = bench.queue.place_at_end(0, 1, JobClass::Interactive);
  EXPECT_LE(other.position, 2U) << "another key does not wait for all of the first one's";
  EXPECT_EQ(bench.queue.place_at_end(0, 1, JobClass::Batch).position, 11U);
}

// The same rules, written down without any cleverness.
class SlowQueue {
 public:
  struct Item {
    Waiting waiting;
    std::uint64_t order = 0;  // of coming, or of ageing
    bool aged = false;
  };

  void push(const Waiting& waiting, TimePoint now) {
    age(now);
    come(waiting.key);
    items.push_back({waiting, next_order_++, false});
  }
  JobIndex front(TimePoint now) {
    age(now);
    const Item* best = nullptr;
    for (const Item& item : items) {
      if (best == nullptr || rank(item) < rank(*best)) best = &item;
    }
    return best == nullptr ? kNone : best->waiting.job;
  }
  void take(JobIndex job) {
    items.erase(std::find_if(items.begin(), items.end(),
                             [job](const Item& item) { return item.waiting.job == job; }));
  }
  void charge(KeyIndex key, double cost) { spent[key] += cost; }

  std::vector<Item> items;
  std::map<KeyIndex, double> spent;

 private:
  std::tuple<bool, double, KeyIndex, std::uint64_t> rank(const Item& item) {
    const bool is_batch = item.waiting.cls == JobClass::Batch && !item.aged;
    return {is_batch, spent[item.waiting.key], item.waiting.key, item.order};
  }
  void come(KeyIndex key) {
    double least = std::numeric_limits<double>::infinity();
    for (const Item& item : items) {
      if (item.waiting.key == key) return;
      least = std::min(least, spent[item.waiting.key]);
    }
    if (!items.empty()) spent[key] = std::max(spent[key], least);
  }
  void age(TimePoint now) {
    for (Item& item : items) {
      if (item.waiting.cls != JobClass::Batch || item.aged) continue;
      if (now - item.waiting.submitted < kAgeing) continue;
      item.aged = true;
      item.order = next_order_++;
    }
  }

  std::uint64_t next_order_ = 0;
};

TEST(Queue, AgreesWithASlowQueueThatScans) {
  Dice random;
  SCOPED_TRACE(random.trace());
  Queue queue;
  SlowQueue slow;
  TimePoint now = kStart;
  std::vector<JobIndex> free(64);
  for (JobIndex i = 0; i < free.size(); ++i) free[i] = i;
  for (int step = 0; step < 20000; ++step) {
    now += Millis(random() % 3000);
    const std::uint32_t what = random() % 8;
    if (what < 4 && !free.empty()) {
      // Costs are unlike each other, so that no two keys ever tie.
      const Waiting waiting{.job = free.back(),
                            .line = 0,
                            .key = random() % 5,
                            .cls = random() % 2 == 0 ? JobClass::Batch : JobClass::Interactive,
                            .cost_s = 1 + static_cast<double>(random() % 1000003) / 1000003,
                            .submitted = now};
      free.pop_back();
      queue.push(waiting, now);
      slow.push(waiting, now);
    } else if (what < 6) {
      const JobIndex job = queue.front(0, now);
      const JobIndex expected = slow.front(now);
      const auto key_of = [&slow](JobIndex wanted) {
        for (const auto& item : slow.items) {
          if (item.waiting.job == wanted) return item.waiting.key;
        }
        return kNone;
      };
      // Keys that have spent the same may come in either order.
      if (job != expected) {
        ASSERT_NE(key_of(job), key_of(expected)) << "step " << step;
        ASSERT_EQ(slow.spent[key_of(job)], slow.spent[key_of(expected)]) << "step " << step;
      }
      if (job == kNone) continue;
      const double cost = 0.5 + static_cast<double>(random() % 1000003) / 1000003;
      const KeyIndex key = key_of(job);
      ASSERT_TRUE(queue.take(job));
      slow.take(job);
      queue.charge(key, cost);
      slow.charge(key, cost);
      free.push_back(job);
    } else if (!slow.items.empty()) {
      const JobIndex job = slow.items[random() % slow.items.size()].waiting.job;
      const QueuePlace place = queue.find_place(job);
      ASSERT_GE(place.position, 1U);
      ASSERT_LE(place.position, slow.items.size());
      ASSERT_GE(place.ahead_s, 0);
      if (what == 6) continue;
      ASSERT_TRUE(queue.take(job));
      slow.take(job);
      free.push_back(job);
    }
    ASSERT_EQ(queue.size(), slow.items.size());
    ASSERT_EQ(queue.waiting(0), slow.items.size());
  }
}

}  // namespace
}  // namespace llorch::fleet
