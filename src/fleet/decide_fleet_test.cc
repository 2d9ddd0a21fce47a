// Loads, hosts and recovery by hand: one event after the other, and what came out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/job_fold.h"
#include "fleet/test_house.h"

namespace llorch::fleet {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::SizeIs;

using DecideLoad = House;

TEST_F(DecideLoad, OneLoadServesManyWaiters) {
  add_host("a", {});
  const JobId first = submit_task();
  const JobId second = submit_task();
  ASSERT_THAT(out.loads, SizeIs(1));
  EXPECT_EQ(phase(first), Phase::Queued);
  pass(seconds(2));
  EXPECT_THAT(out.loads, SizeIs(1));
  feed(LoadEnded{"a", out.loads[0].second.load, std::nullopt, "new", 4});
  // Nobody has measured... the pool has: both go at once or one after the other.
  EXPECT_EQ(phase(first), Phase::Dispatched);
  feed(report("a", {worker("new", 4)}));
  EXPECT_EQ(phase(second), Phase::Dispatched);
  EXPECT_EQ(out.attempts.back().worker, "new");
}

TEST_F(DecideLoad, AJobBehindALoadCountsTheSlotsThatAreToCome) {
  add_host("a", {});
  for (int i = 0; i < 8; ++i) submit_task();
  ASSERT_THAT(out.loads, SizeIs(1));
  // Two seconds to load, then seven jobs of two seconds each in four slots.
  EXPECT_NEAR(out.replies.at(next_job).predicted_start_ms, 2000 + 7 * 2010 / 4.0, 100);
}

TEST_F(DecideLoad, AWorkerWithoutWorkLeavesAfterAQuarterOfAnHour) {
  SeenWorker by_hand = worker("pinned");
  by_hand.is_pinned = true;
  add_host("a", {worker("w"), by_hand});
  add_host("b", {worker("busy")});
  submit_task({.mode = Mode::Pin, .pin_host = "b"});
  begin_attempt();
  const auto live_on = [this](seconds time) {
    for (seconds passed{0}; passed < time; passed += seconds(5)) {
      now += seconds(5);
      for (const char* host : {"a", "b"}) {
        PoolSeen seen = report(host, *host == 'a' ? std::vector{worker("w"), worker("pinned")}
                                                  : std::vector{worker("busy")});
        if (*host == 'a') seen.workers[1].is_pinned = true;
        feed(seen);
      }
      feed(Tick{wall()});
    }
  };
  live_on(seconds(895));
  EXPECT_THAT(out.stops, IsEmpty());
  live_on(seconds(10));
  EXPECT_THAT(out.stops, ::testing::ElementsAre("w"))
      << "once, and neither the busy nor the pinned";
  live_on(seconds(20));
  EXPECT_THAT(out.stops, SizeIs(1));
}

TEST_F(DecideLoad, ABatchJobIsServedAlthoughOthersKeepComing) {
  add_host("a", {worker("w", 1, /*slots=*/1)});
  submit_task();
  const JobId batch = submit_task({.cls = JobClass::Batch});
  // One interactive job always waits; each takes ten seconds.
  int served_before = 0;
  while (phase(batch) == Phase::Queued && served_before < 20) {
    submit_task();
    now += seconds(10);
    feed(report("a", {worker("w", 1, 1)}));
    feed(Tick{wall()});
    begin_attempt();
    end_attempt(AttemptEnd::Completed, 5);
    sync();
    ++served_before;
  }
  EXPECT_GE(served_before, 6) << "interactive ones first";
  EXPECT_LE(served_before, 8) << "but after a minute it is one of them, and the oldest";
}

TEST_F(DecideLoad, TheFirstJobOfALoadedWorkerKnowsItsArithmetic) {
  add_host("a", {});
  const JobId first = submit_task();
  const JobId second = submit_task();
  ASSERT_THAT(out.loads, SizeIs(1));
  out.writes.clear();
  feed(LoadEnded{"a", out.loads[0].second.load, std::nullopt, "new", 4, worker("new", 4)});
  EXPECT_EQ(phase(first), Phase::Dispatched);
  EXPECT_EQ(phase(second), Phase::Dispatched) << "it has two slots";
  ASSERT_FALSE(out.writes.empty());
  for (const JobWrite& write : out.writes)
    EXPECT_EQ(std::get<DispatchedRecord>(write.record).exactness, 9U);
}

TEST_F(DecideLoad, AJobThatNobodyCouldTakeEndsWithTheReasons) {
  add_host("a", {worker("w")});
  submit_task({.labels = {"gpu9"}, .deadline_ms = wall() + 5000});
  pass(seconds(6));
  sync();
  EXPECT_EQ(told_end().code, ErrorCode::DeadlineExceeded);
  EXPECT_THAT(told_end().message, HasSubstr("nobody took it"));
  EXPECT_THAT(told_end().message, HasSubstr("label"));
}

TEST_F(DecideLoad, OneThatWaitedWhenItEndedHasItsSheetWithNames) {
  add_host("a", {worker("w")});
  add_host("b", {worker("v")});
  const JobId id = submit_task({.labels = {"gpu9"}});
  feed(StopAsked{id, StopCause::Asked, 0});
  ASSERT_FALSE(out.writes.empty());
  const std::string why = std::get<EndedRecord>(out.writes.back().record).why;
  EXPECT_THAT(why, HasSubstr("a w"));
  EXPECT_THAT(why, HasSubstr("b v"));
  EXPECT_THAT(why, HasSubstr("b load on device 0"));
  EXPECT_THAT(why, HasSubstr("refused: "));
}

TEST_F(DecideLoad, ARefusalNamesAFewAndCountsTheRest) {
  for (const char* host : {"a", "b", "c", "d", "e", "f"}) add_host(host, {worker("w")});
  const JobId id = submit_task({.labels = {"gpu9"}});
  const ScoreSheet sheet = explain(fleet, id, now);
  EXPECT_THAT(name_refused(fleet, sheet, Refusal::Labels), SizeIs(4));
  EXPECT_THAT(sheet_text(fleet, sheet, {}), HasSubstr("12 refused"));
  EXPECT_THAT(sheet_text(fleet, sheet, {}), HasSubstr(", …)"));
}

TEST_F(DecideLoad, AFailedLoadIsTriedElsewhereAndThenSaid) {
  add_host("a", {});
  add_host("b", {});
  const JobId id = submit_task();
  ASSERT_THAT(out.loads, SizeIs(1));
  feed(LoadEnded{out.loads[0].first, out.loads[0].second.load,
                 Error{ErrorCode::LoadFailed, "broken file"}, "", 0});
  pass(seconds(1));
  ASSERT_THAT(out.loads, SizeIs(2));
  EXPECT_NE(out.loads[0].first, out.loads[1].first);
  EXPECT_EQ(phase(id), Phase::Queued);
  feed(LoadEnded{out.loads[1].first, out.loads[1].second.load,
                 Error{ErrorCode::LoadFailed, "broken file"}, "", 0});
  pass(seconds(1));
  sync();
  EXPECT_EQ(told_end().code, ErrorCode::LoadFailed);
  EXPECT_THAT(told_end().message, HasSubstr("broken file"));
}

TEST_F(DecideLoad, ALoadThatSomebodyKilledIsTriedAgainAFewTimes) {
  add_host("a", {});
  const JobId id = submit_task();
  for (std::size_t tries = 1; tries <= 3; ++tries) {
    ASSERT_THAT(out.loads, SizeIs(tries));
    for (int i = 0; i < 7; ++i) {  // a long load
      pass(seconds(10));
      feed(report("a", {}));
    }
    feed(LoadEnded{.host = "a",
                   .load = out.loads.back().second.load,
                   .error = Error{ErrorCode::LoadFailed, "killed by signal 9"},
                   .was_accident = true});
    ASSERT_EQ(phase(id), Phase::Queued) << "its time in the queue does not count";
    pass(Millis(100));
    EXPECT_THAT(out.loads, SizeIs(tries)) << "not at once";
    for (int i = 0; i < 5 && out.loads.size() == tries; ++i) {
      feed(report("a", {}));
      pass(seconds(1));
    }
  }
  ASSERT_THAT(out.loads, SizeIs(4));
  feed(LoadEnded{.host = "a",
                 .load = out.loads.back().second.load,
                 .error = Error{ErrorCode::LoadFailed, "killed by signal 9"},
                 .was_accident = true});
  pass(seconds(1));
  sync();
  EXPECT_EQ(told_end().code, ErrorCode::LoadFailed) << "four in a row are no accident";
}

TEST_F(DecideLoad, AfterAnAccidentAnotherHostIsTriedFirst) {
  add_host("a", {});
  add_host("b", {});
  submit_task();
  ASSERT_THAT(out.loads, SizeIs(1));
  feed(LoadEnded{.host = out.loads[0].first,
                 .load = out.loads[0].second.load,
                 .error = Error{ErrorCode::LoadFailed, "killed by signal 9"},
                 .was_accident = true});
  pass(seconds(1));
  ASSERT_THAT(out.loads, SizeIs(2));
  EXPECT_NE(out.loads[0].first, out.loads[1].first);
}

TEST_F(DecideLoad, ASecondWorkerOfAModelDoesNotJoinOneOnItsDevice) {
  add_host("a", {worker("w")});
  for (int i = 0; i < 200; ++i) submit_task();
  for (int i = 0; i < 20; ++i) pass(seconds(1));
  EXPECT_THAT(out.loads, SizeIs(0));
  add_host("b", {});
  pass(seconds(1));
  ASSERT_THAT(out.loads, SizeIs(1));
  EXPECT_EQ(out.loads[0].first, "b") << "another device is another matter";
}

TEST_F(DecideLoad, APoolThatCouldNotBeAskedIsAskedAgain) {
  add_host("a", {});
  const JobId id = submit_task();
  ASSERT_THAT(out.loads, SizeIs(1));
  feed(LoadEnded{out.loads[0].first, out.loads[0].second.load,
                 Error{ErrorCode::Unavailable, "the peer closed the connection"}, "", 0});
  pass(seconds(1));
  EXPECT_EQ(phase(id), Phase::Queued) << "nothing was said about the model";
  EXPECT_THAT(out.loads, SizeIs(1));
  pass(seconds(2));
  EXPECT_THAT(out.loads, SizeIs(2));
}

TEST_F(DecideLoad, AnIdleWorkerMakesRoomForAnotherModel) {
  add_host("a", {worker("w"), worker("x", 2)});
  pass(seconds(14));
  for (int i = 0; i < 6; ++i) {
    feed(report("a", {worker("w"), worker("x", 2)}));
    pass(seconds(14));
  }
  feed(report("a", {worker("w"), worker("x", 2)}));
  const JobId busy = submit_task();
  const JobId other = submit_task({.model = kOther});
  ASSERT_THAT(out.loads, SizeIs(1));
  ASSERT_THAT(out.loads[0].second.first_stop, SizeIs(1));
  EXPECT_NE(out.loads[0].second.first_stop[0], out.attempts.back().worker) << "never a busy one";
  EXPECT_EQ(phase(busy), Phase::Dispatched);
  EXPECT_EQ(phase(other), Phase::Queued);
}

TEST_F(DecideLoad, AWorkerThatWasIdleForAQuarterOfAnHourLeaves) {
  add_host("a", {worker("w")});
  for (int i = 0; i < 64; ++i) {
    pass(seconds(14));
    feed(report("a", {worker("w")}));
  }
  EXPECT_THAT(out.stops, IsEmpty());
  pass(seconds(10));
  EXPECT_THAT(out.stops, SizeIs(1));
  pass(seconds(1));
  EXPECT_THAT(out.stops, SizeIs(1));
}

using DecideHost = House;

TEST_F(DecideHost, AfterThreeMissedHeartbeatsItsJobsMove) {
  add_host("a", {worker("w")});
  const JobId id = submit_task();
  begin_attempt();
  add_host("b", {});
  for (int i = 0; i < 3; ++i) {
    pass(seconds(14));
    feed(report("b", {}));
  }
  EXPECT_THAT(out.cuts, IsEmpty());
  pass(seconds(4));
  ASSERT_THAT(out.cuts, SizeIs(1));
  end_attempt(AttemptEnd::Cut, 5);
  EXPECT_EQ(job(id).suspicion.kills, 0) << "a host's death is nobody's doing";
  EXPECT_EQ(phase(id), Phase::Moving);
  ASSERT_THAT(out.loads, SizeIs(1));
  EXPECT_EQ(out.loads[0].first, "b");
}

TEST_F(DecideHost, ASilentStreamIsCut) {
  add_host("a", {worker("w")});
  submit_task();
  begin_attempt();
  const AttemptId attempt = out.attempts.back().attempt;
  feed(Progress{{{attempt, 5, 24'000, 2000}}});
  EXPECT_THAT(out.cuts, IsEmpty());
  feed(Progress{{{attempt, 5, 26'000, 2000}}});
  feed(Progress{{{attempt, 5, 27'000, 2000}}});
  EXPECT_THAT(out.cuts, SizeIs(1));
}

TEST_F(DecideHost, AWorkerThatMakesNoTokensHangs) {
  add_host("a", {worker("w")});
  const JobId id = submit_task();
  begin_attempt();
  const AttemptId attempt = out.attempts.back().attempt;
  pass(seconds(14));
  SeenWorker lively = worker("w");
  lively.token_age_ms = 50;
  feed(report("a", {lively}));
  feed(Progress{{{attempt, 5, 10, 14'000}}});
  EXPECT_THAT(out.cuts, IsEmpty()) << "it makes tokens for others";
  pass(seconds(14));
  SeenWorker silent = worker("w");
  silent.token_age_ms = 28'000;
  feed(report("a", {silent}));
  feed(Progress{{{attempt, 5, 10, 28'000}}});
  ASSERT_THAT(out.cuts, SizeIs(1));
  end_attempt(AttemptEnd::Cut, 5);
  EXPECT_EQ(job(id).suspicion.kills, 1);
}

using Recovery = House;

JobRecords records_of(const JobId& id, std::vector<Record> records, std::uint32_t stored_ids = 0) {
  return {.job = id, .records = std::move(records), .stored = {{stored_ids}}};
}

TEST_F(Recovery, LengthsOfAnswersAreLearntFromStoredOnes) {
  const SubmittedRecord task{.key = {7}, .model = kModel, .choices = 2};
  EndedRecord end{.state = JobState::Completed, .tokens_out = 40};
  learn_from_ended(fleet, records_of({5, 1}, {task, end}));
  const ModelIndex model = find_model(fleet, kModel);
  ASSERT_NE(model, kNone);
  EXPECT_NEAR(fleet.speeds.expected_output({7}, model, 0), 20, 0.01) << "of each choice";
  end = {.state = JobState::Cancelled, .tokens_out = 400};
  learn_from_ended(fleet, records_of({5, 2}, {task, end}));
  learn_from_ended(fleet, records_of({5, 3}, {task}));
  EXPECT_NEAR(fleet.speeds.expected_output({7}, model, 0), 20, 0.01) << "only whole ones count";
}

TEST_F(Recovery, DecidesByTheRecordsAlone) {
  struct Row {
    const char* what;
    SubmittedRecord facts;
    std::vector<Record> more;
    std::optional<JobState> end;  // none: it waits again
  };
  const SubmittedRecord task{.model = kModel, .submitted_ms = kWall - 1000};
  SubmittedRecord held = task;
  held.holder = Holder::Connection;
  SubmittedRecord late = task;
  late.deadline_ms = kWall - 1;
  const Row rows[] = {
      {"queued", task, {}, std::nullopt},
      {"dispatched", task, {DispatchedRecord{2, 1, "a", "w"}}, std::nullopt},
      {"running", task, {DispatchedRecord{2, 1, "a", "w"}, StartedRecord{2, 1, 10}}, std::nullopt},
      {"held by a connection", held, {}, JobState::Cancelled},
      {"told to stop", task, {StopRecord{StopCause::Asked}}, JobState::Cancelled},
      {"too late", task, {StopRecord{StopCause::Deadline}}, JobState::Failed},
      {"past its deadline", late, {}, JobState::Failed},
  };
  begin_recovery(fleet, kWall, now);
  std::uint64_t n = 100;
  for (const Row& row : rows) {
    const JobId id{5, ++n};
    std::vector<Record> records = {row.facts};
    records.insert(records.end(), row.more.begin(), row.more.end());
    const std::size_t count = records.size();
    ASSERT_TRUE(recover_job(fleet, records_of(id, records), now, out).ok()) << row.what;
    if (!row.end) {
      EXPECT_EQ(phase(id), Phase::Queued) << row.what;
      EXPECT_EQ(job(id).next_seq, count) << row.what;
      continue;
    }
    ASSERT_FALSE(out.writes.empty()) << row.what;
    EXPECT_EQ(std::get<EndedRecord>(out.writes.back().record).state, *row.end) << row.what;
    EXPECT_EQ(out.writes.back().expected_seq, count) << row.what;
    sync();
    EXPECT_FALSE(is_live(id)) << row.what;
  }
}

TEST_F(Recovery, GoesOnFromWhatIsStoredOnTheSameArithmetic) {
  begin_recovery(fleet, kWall, now);
  feed(HostAsked{"a", HostKind::Joined, HostWish::Up});
  feed(HostAsked{"b", HostKind::Joined, HostWish::Up});
  const JobId id{5, 1};
  DispatchedRecord sent{2, 1, "a", "w"};
  sent.exactness = 9;
  const SubmittedRecord task{.model = kModel, .submitted_ms = kWall - 1000, .prompt_tokens = 10};
  ASSERT_TRUE(recover_job(fleet, records_of(id, {task, sent}, 17), now, out).ok());
  SeenWorker other = worker("x");
  other.exactness = 8;
  feed(report("b", {other}));
  EXPECT_THAT(out.attempts, IsEmpty()) << "the other host has not answered yet";
  feed(report("a", {}));
  pass(seconds(3));
  EXPECT_THAT(out.attempts, IsEmpty()) << "clients may hold ids that only the same one repeats";
  feed(report("a", {worker("w", 5)}));
  pass(seconds(1));
  ASSERT_THAT(out.attempts, SizeIs(1));
  EXPECT_EQ(out.attempts[0].host, "a");
  EXPECT_TRUE(out.attempts[0].resumes);
  EXPECT_TRUE(out.attempts[0].is_exact);
  EXPECT_EQ(job(id).told, 17U);
  EXPECT_EQ(job(id).moves, 0) << "a crash of ours is no move";
}

TEST_F(Recovery, AfterHalfAMinuteAnotherArithmeticWillDo) {
  begin_recovery(fleet, kWall, now);
  const JobId id{5, 1};
  DispatchedRecord sent{2, 1, "a", "w"};
  sent.exactness = 7;
  const SubmittedRecord task{.model = kModel, .submitted_ms = kWall - 1000, .prompt_tokens = 10};
  ASSERT_TRUE(recover_job(fleet, records_of(id, {task, sent}, 17), now, out).ok());
  add_host("a", {worker("w")});
  for (int i = 0; i < 3; ++i) {
    pass(seconds(11));
    feed(report("a", {worker("w")}));
  }
  pass(seconds(1));
  ASSERT_THAT(out.attempts, SizeIs(1));
  EXPECT_FALSE(out.attempts[0].is_exact);
}

TEST_F(Recovery, RefusesWhatIsNoJob) {
  const SubmittedRecord task{.model = kModel};
  EXPECT_FALSE(fold_job(records_of({1, 1}, {})).ok());
  EXPECT_FALSE(fold_job(records_of({1, 1}, {StopRecord{}})).ok());
  EXPECT_FALSE(fold_job(records_of({1, 1}, {task, task})).ok());
  EXPECT_FALSE(fold_job(records_of({1, 1}, {task, EndedRecord{}, EndedRecord{}})).ok());
  EXPECT_TRUE(fold_job(records_of({1, 1}, {task, EndedRecord{}})).ok());
}

TEST_F(House, UsageIsKeptAndReadBack) {
  add_host("a", {worker("w")});
  submit_task({.key = {7}});
  end_attempt(AttemptEnd::Completed, 30);
  pass(seconds(1));
  const auto usage = usage_from_text(out.kept.at(text(KeyId{7})));
  ASSERT_TRUE(usage.ok());
  EXPECT_EQ(usage->tokens_ever, 40);
  EXPECT_FALSE(usage_from_text("1 2 3").ok());
  EXPECT_FALSE(usage_from_text("1 2 3 x").ok());
}

TEST_F(House, ExplainsEveryCandidate) {
  add_host("a", {worker("w", 1, 1)});
  add_host("b", {});
  submit_task();
  const JobId id = submit_task();
  const ScoreSheet sheet = explain(fleet, id, now);
  EXPECT_GE(sheet.scored + sheet.refused.size(), 3U);
  EXPECT_THAT(sheet_text(fleet, sheet, {}), HasSubstr("load on device 0"));
}

}  // namespace
}  // namespace llorch::fleet
