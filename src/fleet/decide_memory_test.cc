// Models that want the memory of others' workers: who waits, how long, and who gives way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/test_house.h"

namespace llorch::fleet {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::SizeIs;

// A device of 100 bytes with two workers of 40, each with one slot; the other model needs 40.
class DecideTurns : public House {
 protected:
  std::vector<SeenWorker> workers() const {
    return {worker("w", 1, /*slots=*/1), worker("v", 2, /*slots=*/1)};
  }
  void fill_house() {
    add_host("a", workers());
    submit_task();
    submit_task();
    ASSERT_THAT(out.attempts, SizeIs(2));
    for (const AttemptOrder& order : out.attempts) feed(AttemptStarted{order.attempt, 10, 0});
  }
  // The pool goes on saying the same.
  void stay(seconds time) {
    for (seconds passed{0}; passed < time; passed += seconds(1)) {
      pass(seconds(1));
      if (out.loads.empty()) feed(report("a", workers()));
    }
  }
  void end(std::size_t attempt) {
    feed(AttemptEnded{.attempt = out.attempts[attempt].attempt,
                      .end = AttemptEnd::Completed,
                      .stop_reason = "eos",
                      .told = 5});
    sync();
  }
};

TEST_F(DecideTurns, AJobWaitsForWorkersThatAreAtWorkAndHearsHowLong) {
  fill_house();
  const JobId id = submit_task({.model = kOther});
  stay(seconds(200));
  ASSERT_TRUE(is_live(id)) << "the memory will be free: that is no failure";
  EXPECT_THAT(out.loads, IsEmpty()) << "a busy worker is never thrown out";
  end(0);
  stay(seconds(2));
  ASSERT_THAT(out.loads, SizeIs(1));
  EXPECT_EQ(out.loads.front().second.model, kOther);
  EXPECT_THAT(out.loads.front().second.first_stop, SizeIs(1));
  EXPECT_EQ(phase(id), Phase::Queued) << "until it is loaded";
}

TEST_F(DecideTurns, ItsPredictionHasTheTimeOfTheJobsBeforeIt) {
  fill_house();
  stay(seconds(70));  // both have been here long enough to leave
  const double load_ms = 2000;
  feed(Submitted{.request = 77,
                 .job = {5, 77},
                 .facts = {.model = kOther,
                           .model_name = "m",
                           .submitted_ms = wall(),
                           .prompt_tokens = 10,
                           .max_tokens = 100}});
  sync();
  const TimePoint free_at = std::min(fleet.workers[0].running.front().predicted_end,
                                     fleet.workers[1].running.front().predicted_end);
  EXPECT_GE(out.replies.at(77).predicted_start_ms,
            load_ms + std::max(0.0, millis_between(now, free_at)));
}

TEST_F(DecideTurns, AStreamOfJobsGivesWayAfterAMinute) {
  add_host("a", {worker("w", 1, /*slots=*/1), worker("v", 2, /*slots=*/1)});
  const auto keep_busy = [this] {
    while (fleet.job_by_id.size() < 6) submit_task();
  };
  keep_busy();
  stay(seconds(70));
  const JobId other = submit_task({.model = kOther});
  std::size_t ended = 0;
  seconds waited{0};
  while (out.loads.empty() && waited < seconds(300)) {
    // One of two workers ends a job every second: none is ever idle.
    if (ended < out.attempts.size()) end(ended++);
    keep_busy();
    stay(seconds(1));
    waited += seconds(1);
  }
  ASSERT_THAT(out.loads, SizeIs(1)) << "its turn comes";
  EXPECT_GE(waited, seconds(59)) << "and not at once";
  EXPECT_LT(waited, seconds(70));
  EXPECT_TRUE(is_live(other));
}

TEST_F(DecideTurns, NobodyMakesRoomForAJobThatIsPinnedElsewhere) {
  fill_house();
  stay(seconds(70));
  const auto makes_room = [this] {
    return std::count_if(fleet.workers.begin(), fleet.workers.end(),
                         [this](const Worker& one) { return one.room_until > now; });
  };
  submit_task({.model = kOther, .mode = Mode::Pin, .pin_host = "c"});
  stay(seconds(65));
  EXPECT_EQ(makes_room(), 0);
  submit_task({.model = kOther, .mode = Mode::Pin, .pin_host = "a"});
  stay(seconds(62));
  EXPECT_EQ(makes_room(), 1) << "one of the two has as much as the job needs";
}

TEST_F(DecideTurns, WhoeverMakesRoomForNobodyWorksOn) {
  add_host("a", {worker("w", 1, /*slots=*/1), worker("v", 2, /*slots=*/1)});
  submit_task();
  submit_task();
  stay(seconds(70));
  const JobId other = submit_task({.model = kOther});
  const JobId waiting = submit_task();
  stay(seconds(62));
  EXPECT_TRUE(std::any_of(fleet.workers.begin(), fleet.workers.end(),
                          [this](const Worker& one) { return one.room_until > now; }));
  feed(StopAsked{.job = other, .cause = StopCause::Asked});
  sync();
  stay(seconds(5));
  end(0);
  stay(seconds(1));
  EXPECT_NE(phase(waiting), Phase::Queued) << "it was given the slot that ended";
}

TEST_F(DecideTurns, AFreshWorkerIsLeftToWork) {
  fill_house();
  const JobId other = submit_task({.model = kOther});
  stay(seconds(40));
  end(0);
  stay(seconds(5));
  EXPECT_THAT(out.loads, IsEmpty()) << "it has been here for less than a minute";
  EXPECT_TRUE(is_live(other));
  stay(seconds(30));
  EXPECT_THAT(out.loads, SizeIs(1));
}

TEST_F(DecideTurns, AMinuteWhereSomebodysOwnWorkersHaveTheMemory) {
  std::vector<SeenWorker> pinned = workers();
  for (SeenWorker& one : pinned) one.is_pinned = true;
  add_host("a", pinned);
  submit_task();
  submit_task();
  const JobId id = submit_task({.model = kOther});
  for (int i = 0; i < 70; ++i) {
    pass(seconds(1));
    feed(report("a", pinned));
  }
  sync();
  EXPECT_FALSE(is_live(id));
  EXPECT_THAT(told_end().message, HasSubstr("memory in use (a load on device 0)"));
}

TEST_F(DecideTurns, TheTermsOfACandidateAddUp) {
  add_host("a", {worker("w")});
  ScoreSheet sheet;
  sheet.best.push_back({.worker = 0,
                        .host = 0,
                        .finish_ms = 226,
                        .wait_ms = 250,
                        .prefill_ms = 9,
                        .decode_ms = 22,
                        .bonus_ms = -55});
  EXPECT_EQ(sheet_text(fleet, sheet, {}),
            "a w: finish 226 = wait 250 + load 0 + prefill 9 + decode 22 + harm 0 - 55 ms for the "
            "same arithmetic\n");
}

TEST_F(DecideTurns, TheLabelThatAHostLacksIsNamed) {
  add_host("a", {worker("w")});
  const JobId id = submit_task({.labels = {"gpu"}});
  const std::vector<std::string> labels = {"gpu"};
  const ScoreSheet sheet = explain(fleet, id, now);
  EXPECT_THAT(sheet_text(fleet, sheet, labels),
              HasSubstr("its host lacks a label: gpu (a w, a load on device 0)"));
}

}  // namespace
}  // namespace llorch::fleet
