// Where a job goes, term by term; what leaves a device; what is learnt; which prompts are known.
#include "fleet/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "fleet/dice.h"
#include "fleet/eviction.h"

namespace llorch::fleet {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre, ::testing::IsEmpty;

const TimePoint kNow{seconds(5000)};

// One model on a few workers and devices with speeds that are measured.
struct House {
  SpeedIndex measured(double prefill, double decode) {
    const SpeedIndex row = speeds.find_or_add(0, next_device++, {});
    speeds.learn_prefill(row, prefill);
    for (std::uint32_t streams = 1; streams <= 64; streams *= 2)
      speeds.learn_decode(row, streams, decode / (1 + 0.1 * (streams - 1)));
    return row;
  }
  WorkerView& add_worker(double prefill = 1000, double decode = 50) {
    return workers.emplace_back(WorkerView{.worker = static_cast<WorkerIndex>(workers.size()),
                                           .host = static_cast<HostIndex>(workers.size()),
                                           .speed = measured(prefill, decode),
                                           .slots = 4});
  }
  DeviceView& add_device(double load_ms, double decode = 50) {
    const SpeedIndex row = measured(1000, decode);
    return devices.emplace_back(DeviceView{.device = static_cast<DeviceIndex>(devices.size()),
                                           .host = static_cast<HostIndex>(100 + devices.size()),
                                           .speed = row,
                                           .load_ms = load_ms});
  }
  Decision place_job() {
    return place({.workers = workers,
                  .devices = devices,
                  .speeds = &speeds,
                  .line_ms = line_ms,
                  .now = kNow},
                 job, sheet);
  }

  Speeds speeds;
  std::vector<WorkerView> workers;
  std::vector<DeviceView> devices;
  DeviceIndex next_device = 0;
  double line_ms = 0;
  JobView job{.prompt_tokens = 100, .expected_output = 100};
  ScoreSheet sheet;
};

TEST(Placement, PredictsTheFinishFromItsTerms) {
  House house;
  house.add_worker(1000, 50);
  const Decision decision = house.place_job();
  EXPECT_EQ(decision.choice, Choice::UseWorker);
  ASSERT_EQ(house.sheet.best.size(), 1U);
  const ScoreLine& line = house.sheet.best[0];
  EXPECT_NEAR(line.prefill_ms, 100, 1);
  EXPECT_NEAR(line.decode_ms, 2000, 10);
  EXPECT_NEAR(line.finish_ms, 2100, 11);
  EXPECT_EQ(line.wait_ms, 0);
  EXPECT_EQ(line.harm_ms, 0);
}

TEST(Placement, TakesTheWorkerThatFinishesFirst) {
  House house;
  house.add_worker(1000, 20);
  house.add_worker(1000, 60);
  house.add_worker(1000, 40);
  EXPECT_EQ(house.place_job().worker, 1U);
  EXPECT_EQ(house.sheet.best.size(), 3U);
  EXPECT_LT(house.sheet.best[0].finish_ms, house.sheet.best[1].finish_ms);
}

TEST(Placement, CountsWhatIsCachedAsFarAsItIsTrusted) {
  House house;
  house.add_worker();
  house.add_worker().trust = 0.5F;
  house.job.prompt_tokens = 2000;
  house.job.tokens_per_block = 64;
  const PrefixHit hits[] = {{1, 16}};
  house.job.hits = hits;
  EXPECT_EQ(house.place_job().worker, 1U);
  EXPECT_FLOAT_EQ(house.sheet.best[0].cached_tokens, 512);
  house.workers[1].trust = 0;
  EXPECT_EQ(house.place_job().worker, 0U);
}

TEST(Placement, WaitsForAFastWorkerRatherThanUseASlowOne) {
  House house;
  WorkerView& fast = house.add_worker(10000, 100);
  fast.busy = fast.slots;
  fast.next_free = kNow + seconds(1);
  house.add_worker(100, 2);
  Decision decision = house.place_job();
  EXPECT_EQ(decision.choice, Choice::Wait);
  EXPECT_EQ(decision.worker, 0U);
  // With a long line behind it, the slow one is better than the end of the line.
  house.line_ms = 120'000;
  decision = house.place_job();
  EXPECT_EQ(decision.choice, Choice::UseWorker);
  EXPECT_EQ(decision.worker, 1U);
}

TEST(Placement, LoadsOnlyWhereThatIsMuchBetterThanWaiting) {
  House house;
  WorkerView& busy = house.add_worker();
  busy.busy = busy.slots;
  busy.next_free = kNow + seconds(10);
  house.add_device(9000);
  EXPECT_EQ(house.place_job().choice, Choice::Wait) << "11.1 s against 12.1 s";
  house.devices[0].load_ms = 3000;
  const Decision decision = house.place_job();
  EXPECT_EQ(decision.choice, Choice::Load);
  EXPECT_EQ(decision.device, 0U);
  EXPECT_NEAR(decision.start_ms, 3000, 1);
}

TEST(Placement, LoadsWhereNobodyServes) {
  House house;
  house.add_device(60'000);
  house.add_device(20'000);
  const Decision decision = house.place_job();
  EXPECT_EQ(decision.choice, Choice::Load);
  EXPECT_EQ(decision.device, 1U);
}

TEST(Placement, AGuessIsWorthOneTrialAtATime) {
  House house;
  WorkerView& guessed = house.add_worker();
  guessed.speed = house.speeds.find_or_add(7, 7, {1e12, 1e9});
  EXPECT_EQ(house.place_job().choice, Choice::UseWorker);
  guessed.busy = 1;
  EXPECT_EQ(house.place_job().choice, Choice::Wait);
  house.speeds.learn_decode(guessed.speed, 1, 30);
  EXPECT_EQ(house.place_job().choice, Choice::UseWorker);
}

TEST(Placement, SpreadMindsTheNeighboursMoreThanFast) {
  House house;
  house.add_worker(1000, 60).busy = 2;
  house.add_worker(1000, 42);
  EXPECT_EQ(house.place_job().worker, 0U);
  house.job.mode = Mode::Spread;
  EXPECT_EQ(house.place_job().worker, 1U);
}

TEST(Placement, PrefersTheSameArithmeticForAnAnswerThatGoesOn) {
  House house;
  house.add_worker(1000, 50).exactness = 7;
  house.add_worker(1000, 60).exactness = 8;
  EXPECT_EQ(house.place_job().worker, 1U);
  house.job.exactness = 7;
  EXPECT_EQ(house.place_job().worker, 0U);
  house.job.must_be_exact = true;
  house.workers[0].closed = Refusal::HostDown;
  EXPECT_EQ(house.place_job().choice, Choice::Wait) << "nobody else may tell it";
}

TEST(Placement, RefusesForReasonsThatItNames) {
  struct Row {
    Refusal refusal;
    void (*spoil)(House&);
    Choice choice;
  };
  const Row rows[] = {
      {Refusal::PinnedElsewhere,
       [](House& h) {
         h.job.mode = Mode::Pin;
         h.job.pin = 9;
       },
       Choice::Refuse},
      {Refusal::Labels, [](House& h) { h.job.labels = 6; }, Choice::Refuse},
      {Refusal::CannotResume,
       [](House& h) {
         h.job.must_resume = true;
         h.workers[0].can_resume = false;
       },
       Choice::Refuse},
      {Refusal::HostDown, [](House& h) { h.workers[0].closed = Refusal::HostDown; }, Choice::Wait},
      {Refusal::Draining, [](House& h) { h.workers[0].closed = Refusal::Draining; }, Choice::Wait},
      {Refusal::BreakerOpen, [](House& h) { h.workers[0].closed = Refusal::BreakerOpen; },
       Choice::Wait},
      {Refusal::OtherSuspect,
       [](House& h) {
         h.job.is_suspect = true;
         h.workers[0].has_suspect = true;
       },
       Choice::Wait},
  };
  for (const Row& row : rows) {
    House house;
    house.add_worker().labels = 2;
    row.spoil(house);
    EXPECT_EQ(house.place_job().choice, row.choice) << name(row.refusal);
    EXPECT_EQ(house.sheet.refusals[static_cast<std::size_t>(row.refusal)], 1U) << name(row.refusal);
    ASSERT_EQ(house.sheet.refused.size(), 1U);
    EXPECT_EQ(house.sheet.refused[0].refusal, row.refusal);
    EXPECT_FALSE(name(row.refusal).empty());
  }
}

TEST(Placement, AGuessedLengthChoosesTheLargerContextButRefusesNobody) {
  House house;
  house.add_worker(1000, 60).context = 128;
  house.add_worker(1000, 50).context = 256;
  house.job.needed_context = 129;
  EXPECT_EQ(house.place_job().worker, 1U);
  EXPECT_EQ(house.sheet.refusals[static_cast<std::size_t>(Refusal::ContextTooSmall)], 1U);
  house.job.needed_context = 1000;  // the worker counts, and says no itself
  const Decision decision = house.place_job();
  EXPECT_EQ(decision.choice, Choice::UseWorker);
  EXPECT_EQ(decision.worker, 0U);
  house.workers[0].closed = house.workers[1].closed = Refusal::HostDown;
  EXPECT_EQ(house.place_job().choice, Choice::Wait);
}

TEST(Placement, SaysTooLateWhenItWouldBeginAfterItsDeadline) {
  House house;
  house.add_device(20'000);
  house.job.remaining_ms = 19'000;
  EXPECT_EQ(house.place_job().choice, Choice::TooLate);
}

TEST(Placement, TheSheetHoldsTheBestAndTheCountOfAll) {
  House house;
  const SpeedIndex row = house.measured(1000, 50);
  Dice random(7);
  for (WorkerIndex i = 0; i < 500; ++i) {
    house.workers.push_back({.worker = i, .host = i, .speed = row, .slots = 64});
    house.workers.back().busy = static_cast<std::uint16_t>(random() % 60);
    if (i % 5 == 0) house.workers.back().closed = Refusal::Draining;
  }
  const Decision decision = house.place_job();
  EXPECT_EQ(house.sheet.scored, 400U);
  EXPECT_EQ(house.sheet.best.size(), ScoreSheet::kLinesMax);
  EXPECT_EQ(std::accumulate(house.sheet.refusals.begin(), house.sheet.refusals.end(), 0U), 100U);
  EXPECT_EQ(house.sheet.best[0].worker, decision.worker);
  for (std::size_t i = 1; i < house.sheet.best.size(); ++i)
    EXPECT_LE(house.sheet.best[i - 1].finish_ms, house.sheet.best[i].finish_ms);
}

TEST(Placement, NeverBreaksARuleWhateverTheHouse) {
  Dice random;
  SCOPED_TRACE(random.trace());
  for (int round = 0; round < 3000; ++round) {
    House house;
    const std::uint32_t count = random() % 12;
    for (std::uint32_t i = 0; i < count; ++i) {
      WorkerView& view = house.add_worker(10 + random() % 5000, 1 + random() % 200);
      view.busy = static_cast<std::uint16_t>(random() % 5);
      view.labels = random() % 4;
      view.has_suspect = random() % 4 == 0;
      view.is_loading = random() % 5 == 0;
      view.next_free = kNow + Millis(random() % 20000);
      if (random() % 6 == 0) view.closed = Refusal::BreakerOpen;
    }
    for (std::uint32_t i = random() % 3; i > 0; --i) house.add_device(random() % 30000).labels = 3;
    house.job.labels = random() % 4;
    house.job.is_suspect = random() % 2 == 0;
    house.job.mode = static_cast<Mode>(random() % 3);
    house.job.pin = random() % 12;
    const Decision decision = house.place_job();
    EXPECT_EQ(house.sheet.scored + house.sheet.refused.size(),
              house.workers.size() + house.devices.size());
    if (decision.choice == Choice::UseWorker) {
      const WorkerView& view = house.workers[decision.worker];
      EXPECT_LT(view.busy, view.slots);
      EXPECT_FALSE(view.is_loading);
      EXPECT_EQ(view.closed, Refusal::None);
      EXPECT_EQ(house.job.labels & ~view.labels, 0U);
      EXPECT_FALSE(house.job.is_suspect && view.has_suspect);
      EXPECT_TRUE(house.job.mode != Mode::Pin || view.host == house.job.pin);
    }
    if (decision.choice == Choice::Refuse) {
      EXPECT_EQ(house.sheet.scored, 0U);
    }
  }
}

TEST(Eviction, TakesTheCheapestThatMayLeave) {
  const Tenant old{.worker = 1, .bytes = 4 << 20, .reload_ms = 5000, .idle_s = 1200, .age_s = 5000};
  const Tenant used{.worker = 2, .bytes = 4 << 20, .reload_ms = 5000, .idle_s = 5, .age_s = 5000};
  Tenant busy = old;
  busy.worker = 3;
  busy.is_busy = true;
  Tenant pinned = old;
  pinned.worker = 4;
  pinned.is_pinned = true;
  Tenant fresh = old;
  fresh.worker = 5;
  fresh.age_s = 20;
  const Tenant all[] = {busy, pinned, fresh, used, old};
  EXPECT_GT(keep_value(used), keep_value(old));
  EXPECT_THAT(*choose_evictions(all, 1 << 20), ElementsAre(1));
  EXPECT_THAT(*choose_evictions(all, 8 << 20), ElementsAre(2, 1));
  EXPECT_FALSE(choose_evictions(all, 9 << 20)) << "the others may not leave";
  EXPECT_THAT(*choose_evictions(all, 0), IsEmpty());
  EXPECT_TRUE(is_past_idle_time(old));
  EXPECT_FALSE(is_past_idle_time(pinned));
  EXPECT_FALSE(is_past_idle_time(used));
}

TEST(Eviction, LeavesWhoIsNotNeeded) {
  const Tenant small{.worker = 1, .bytes = 1, .reload_ms = 0.001, .idle_s = 100, .age_s = 5000};
  const Tenant big{.worker = 2, .bytes = 1000, .reload_ms = 1e6, .idle_s = 100, .age_s = 1e6};
  const Tenant all[] = {small, big};
  EXPECT_THAT(*choose_evictions(all, 1000), ElementsAre(2));
}

TEST(Speeds, TheFirstMeasurementReplacesTheGuessAndLaterOnesMoveTheMean) {
  Speeds speeds;
  const SpeedIndex row = speeds.find_or_add(0, 0, {100e9, 10e9});
  EXPECT_NEAR(speeds.row(row).decode_tps[0], 6, 1e-9) << "0.6 of the bandwidth over the weights";
  EXPECT_TRUE(speeds.row(row).is_guess());
  speeds.learn_decode(row, 1, 80);
  EXPECT_NEAR(speeds.row(row).decode_tps[0], 80, 1e-6);
  for (int i = 0; i < 60; ++i) speeds.learn_decode(row, 1, 20);
  EXPECT_NEAR(speeds.row(row).decode_tps[0], 20, 0.1);
  EXPECT_FALSE(speeds.row(row).is_guess());
  EXPECT_EQ(speeds.find_or_add(0, 0, {}), row);
}

TEST(Speeds, StepsWithoutAMeasurementFollowTheNearest) {
  Speeds speeds;
  const SpeedIndex row = speeds.find_or_add(0, 0, {});
  speeds.learn_decode(row, 8, 30);
  const SpeedRow& learnt = speeds.row(row);
  EXPECT_NEAR(learnt.decode_tps[batch_step(8)], 30, 1e-6);
  for (std::size_t i = 1; i < kBatchSteps; ++i)
    EXPECT_LT(learnt.decode_tps[i], learnt.decode_tps[i - 1]) << i;
  speeds.learn_decode(row, 1, 1e300);
  EXPECT_LE(speeds.row(row).decode_tps[0], 1e6) << "a broken clock";
}

TEST(Speeds, BatchStepsAreTheNextPowerOfTwo) {
  for (const auto& [streams, step] : {std::pair{0U, 0U},
                                      {1U, 0U},
                                      {2U, 1U},
                                      {3U, 2U},
                                      {4U, 2U},
                                      {5U, 3U},
                                      {64U, 6U},
                                      {1000U, 6U}})
    EXPECT_EQ(batch_step(streams), step) << streams;
}

TEST(Speeds, LearnsTheLengthOfAnswersForEachKeyAndModel) {
  Speeds speeds;
  EXPECT_EQ(speeds.expected_output({1}, 0, 0), 256);
  EXPECT_EQ(speeds.expected_output({1}, 0, 10), 10);
  for (int i = 0; i < 50; ++i) speeds.learn_output({1}, 0, 40);
  EXPECT_NEAR(speeds.expected_output({1}, 0, 0), 40, 1);
  EXPECT_NEAR(speeds.expected_output({2}, 0, 0), 40, 1) << "of another key: what the model does";
  EXPECT_EQ(speeds.expected_output({1}, 1, 0), 256);
}

TEST(Speeds, LearnsHowLongSlotsAreHeld) {
  Speeds speeds;
  speeds.learn_slot(3, 1, 2.5);
  EXPECT_NEAR(speeds.slot_ratio(3), 2.5, 1e-9) << "the first one counts whole";
  for (int i = 0; i < 200; ++i) speeds.learn_slot(3, 1, 0.5);
  EXPECT_NEAR(speeds.slot_ratio(3), 0.5, 0.01);
  EXPECT_EQ(speeds.slot_ratio(0), 1);
  speeds.learn_slot(0, 0, 5);
  EXPECT_EQ(speeds.slot_ratio(0), 1) << "nothing was predicted";
}

std::vector<std::uint64_t> prompt_of(std::uint64_t seed, std::size_t blocks) {
  std::vector<std::uint64_t> hashes(blocks);
  for (std::uint64_t& hash : hashes) hash = seed = (seed + 1) * 0x9e3779b97f4a7c15U;
  return hashes;
}

TEST(PrefixTable, FindsWhoHasTheLongestBeginning) {
  PrefixTable table(1024);
  const auto prompt = prompt_of(1, 20);
  const auto start_of = [](WorkerIndex worker) { return worker + 100; };
  table.note(std::span(prompt).first(5), 1, 101);
  table.note(std::span(prompt).first(12), 2, 102);
  std::array<PrefixHit, PrefixTable::kHitsMax> hits;
  ASSERT_EQ(table.find(prompt, hits, start_of), 2U);
  EXPECT_EQ(hits[0].worker, 2U);
  EXPECT_EQ(hits[0].blocks, 12U);
  EXPECT_EQ(hits[1].worker, 1U);
  EXPECT_EQ(hits[1].blocks, 5U);
  const auto restarted = [](WorkerIndex) { return 7U; };
  EXPECT_EQ(table.find(prompt, hits, restarted), 0U) << "its cache died with it";
  EXPECT_EQ(table.find(prompt_of(2, 20), hits, start_of), 0U);
}

TEST(PrefixTable, StaysBoundedAndKeepsWhatIsUsed) {
  PrefixTable table(1024);
  const auto start_of = [](WorkerIndex) { return 0U; };
  const auto precious = prompt_of(1, 8);
  std::array<PrefixHit, PrefixTable::kHitsMax> hits;
  std::size_t kept = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    table.note(precious, 1, 0);
    table.note(prompt_of(1000 + i, 4), 2, 0);
    kept += table.find(precious, hits, start_of) > 0 ? 1U : 0U;
  }
  EXPECT_GT(kept, 1990U);
}

TEST(PrefixTable, ManyHoldersOfOnePromptPushEachOtherOut) {
  PrefixTable table(64);
  const auto prompt = prompt_of(9, 1);
  for (WorkerIndex worker = 0; worker < 20; ++worker) table.note(prompt, worker, 0);
  std::array<PrefixHit, PrefixTable::kHitsMax> hits;
  EXPECT_EQ(table.find(prompt, hits, [](WorkerIndex) { return 0U; }), 4U);
}

}  // namespace
}  // namespace llorch::fleet
