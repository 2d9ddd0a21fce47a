#include "orchestrator/worker_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace llorch::orchestrator {
namespace {

using contract::PoolWorkerState;
using ::testing::ElementsAre, ::testing::IsEmpty;

contract::PoolWorker worker(std::string id, std::uint32_t start, PoolWorkerState state) {
  contract::PoolWorker made;
  made.id = std::move(id);
  made.start = start;
  made.model = "m";
  made.state = state;
  return made;
}

class WatchTest : public ::testing::Test {
 protected:
  std::vector<std::string> take(const std::vector<contract::PoolWorker>& workers) {
    std::vector<std::string> lines;
    for (const WorkerAct& act : watch.take(pool_start, workers))
      lines.push_back(std::string(act.action) + " " + act.worker);
    return lines;
  }

  WorkerWatch watch;
  std::uint64_t pool_start = 1;
};

TEST_F(WatchTest, TellsWhatSomebodyElseDid) {
  EXPECT_THAT(take({worker("a", 1, PoolWorkerState::Ready)}), IsEmpty()) << "it was there";
  EXPECT_THAT(
      take({worker("a", 1, PoolWorkerState::Busy), worker("b", 2, PoolWorkerState::Starting)}),
      ElementsAre("worker.start b"));
  EXPECT_THAT(
      take({worker("a", 1, PoolWorkerState::Draining), worker("b", 2, PoolWorkerState::Ready)}),
      ElementsAre("worker.drain a"));
  EXPECT_THAT(
      take({worker("a", 1, PoolWorkerState::Draining), worker("b", 2, PoolWorkerState::Ready)}),
      IsEmpty());
  EXPECT_THAT(
      take({worker("a", 1, PoolWorkerState::Stopped), worker("b", 3, PoolWorkerState::Starting)}),
      ElementsAre("worker.stop a", "worker.start b"))
      << "b was started anew";
  EXPECT_THAT(take({}), ElementsAre("worker.stop b")) << "a had ended before";
}

TEST_F(WatchTest, OurOwnOrdersAndAccidentsAreNoActs) {
  EXPECT_THAT(take({worker("a", 1, PoolWorkerState::Ready)}), IsEmpty());
  watch.note_own_start("b", 2);
  EXPECT_THAT(
      take({worker("a", 1, PoolWorkerState::Failed), worker("b", 2, PoolWorkerState::Ready)}),
      IsEmpty());
  watch.note_own_stop("b");
  EXPECT_THAT(take({worker("b", 2, PoolWorkerState::Draining)}), IsEmpty());
  EXPECT_THAT(take({}), IsEmpty());
  EXPECT_THAT(take({worker("b", 3, PoolWorkerState::Ready)}), ElementsAre("worker.start b"));
  EXPECT_THAT(take({}), ElementsAre("worker.stop b")) << "the order was about the one before";
}

TEST_F(WatchTest, APoolThatStartsAgainOrEndsByOurOrderTellsNothing) {
  EXPECT_THAT(take({worker("a", 1, PoolWorkerState::Ready)}), IsEmpty());
  pool_start = 2;
  EXPECT_THAT(take({worker("b", 2, PoolWorkerState::Ready)}), IsEmpty());
  watch.note_own_end();
  EXPECT_THAT(take({worker("b", 2, PoolWorkerState::Draining)}), IsEmpty());
  EXPECT_THAT(take({}), IsEmpty());
  pool_start = 3;
  EXPECT_THAT(take({}), IsEmpty());
  EXPECT_THAT(take({worker("c", 4, PoolWorkerState::Ready)}), ElementsAre("worker.start c"));
}

}  // namespace
}  // namespace llorch::orchestrator
