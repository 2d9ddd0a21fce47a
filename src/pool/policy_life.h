// A worker's life as the policy sees it, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <csignal>
#include <random>
#include "pool/worker_policy.h"

namespace llorch::pool {

using contract::ExitCategory;
using contract::PoolWorkerState;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty,
    ::testing::Not;

// A worker under a clock of its own, with everything it was told to do.
class Life {
 public:
  explicit Life(bool gpu = false) {
    facts.uses_gpu = gpu;
    note_spawned(facts, now, now + seconds(60));
  }

  // The actions of now.
  std::vector<Action> step() {
    const Step step = next_step(facts, now, timing);
    EXPECT_GT(step.wake, now) << "asks to be asked again at once, for ever";
    EXPECT_THAT(next_step(facts, now, timing).actions, IsEmpty()) << "an action was given twice";
    return step.actions;
  }
  std::vector<Action> after(milliseconds time) {
    now += time;
    return step();
  }
  std::vector<Action> healthy(std::int64_t busy = 0, std::optional<std::int64_t> age_ms = 0,
                              std::optional<std::int64_t> steps = std::nullopt) {
    HealthAnswer answer;
    answer.report.status = contract::WorkerStatus::Healthy;
    answer.report.slots_busy = busy;
    answer.report.last_token_age_ms = age_ms;
    answer.steps = steps;
    note_health(facts, answer, now);
    return step();
  }
  std::vector<Action> ready() {
    step();
    healthy();
    note_ready(facts);
    return step();
  }
  std::vector<Action> stop() {
    ask_stop(facts);
    return step();
  }
  std::vector<Action> end(EndFacts end) {
    facts.end = std::move(end);
    return step();
  }
  static EndFacts exited(int code) { return {.has_note = true, .code = code}; }
  static EndFacts killed_by(int signal) { return {.has_note = true, .signal = signal}; }

  PoolTiming timing;
  TimePoint now{seconds(1000)};
  WorkerFacts facts;
};

}  // namespace llorch::pool
