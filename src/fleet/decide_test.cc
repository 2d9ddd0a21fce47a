// The life of jobs by hand: one event after the other, and what came out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/job_fold.h"
#include "fleet/test_house.h"

namespace llorch::fleet {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::SizeIs;

using DecideJob = House;

TEST_F(DecideJob, ATaskIsPromisedOnceItIsDurable) {
  add_host("a", {worker("w")});
  const JobId id = submit();
  EXPECT_EQ(phase(id), Phase::Accepting);
  EXPECT_THAT(out.replies, IsEmpty());
  EXPECT_THAT(out.attempts, IsEmpty());
  ASSERT_THAT(out.writes, SizeIs(1));
  EXPECT_TRUE(out.writes[0].eager);
  sync();
  EXPECT_TRUE(out.replies.at(1).status.ok());
  EXPECT_EQ(phase(id), Phase::Dispatched);
}

TEST_F(DecideJob, ARequestOfAConnectionDoesNotWaitForTheDisk) {
  add_host("a", {worker("w")});
  const JobId id = submit({.holder = Holder::Connection});
  EXPECT_EQ(phase(id), Phase::Dispatched);
  for (const JobWrite& write : out.writes) EXPECT_FALSE(write.eager);
  end_attempt(AttemptEnd::Completed, 5);
  EXPECT_FALSE(is_live(id));
  EXPECT_EQ(told_end().state, JobState::Completed);
}

TEST_F(DecideJob, ATaskHearsItsEndOnceThatIsDurable) {
  add_host("a", {worker("w")});
  const JobId id = submit_task();
  begin_attempt();
  EXPECT_EQ(phase(id), Phase::Running);
  end_attempt(AttemptEnd::Completed, 42);
  EXPECT_EQ(phase(id), Phase::Closing);
  const std::size_t notices = out.notices.size();
  sync();
  ASSERT_EQ(out.notices.size(), notices + 1);
  EXPECT_EQ(told_end().state, JobState::Completed);
  EXPECT_EQ(told_end().tokens_out, 42U);
  EXPECT_FALSE(is_live(id));
  const auto folded = fold_job({.job = id, .records = stored[id]});
  ASSERT_TRUE(folded.ok()) << folded.error().message;
  EXPECT_EQ(folded->state, JobState::Completed);
  EXPECT_EQ(folded->attempts, 1U);
  EXPECT_THAT(folded->why, HasSubstr("a w: finish"));
}

TEST_F(DecideJob, AnEndThatCouldNotBeWrittenIsWrittenAgain) {
  add_host("a", {worker("w")});
  const JobId id = submit_task();
  sync();
  end_attempt(AttemptEnd::Completed, 1);
  sync(WriteOutcome::Failed);
  EXPECT_TRUE(is_live(id));
  EXPECT_THAT(out.writes, IsEmpty());
  pass(seconds(1));
  ASSERT_THAT(out.writes, SizeIs(1));
  EXPECT_EQ(out.writes[0].expected_seq, stored[id].size());
  sync();
  EXPECT_FALSE(is_live(id));
  EXPECT_EQ(told_end().state, JobState::Completed);
}

TEST_F(DecideJob, WhoStopsAJobIsToldThatItsEndCouldNotBeStored) {
  add_host("a", {worker("w")});
  const JobId id = submit_task();
  sync();
  feed(StopAsked{id, StopCause::Asked, 70});
  end_attempt(AttemptEnd::Cut);
  EXPECT_FALSE(out.replies.contains(70)) << "the disk may still take it";
  sync(WriteOutcome::Failed);
  ASSERT_TRUE(out.replies.contains(70)) << "and else nobody waits for it";
  EXPECT_EQ(out.replies.at(70).status.error().code, ErrorCode::Unavailable);
  EXPECT_GT(out.replies.at(70).retry_after_ms, 0);
  feed(StopAsked{id, StopCause::Asked, 71});
  pass(seconds(1));
  sync(WriteOutcome::Failed);
  EXPECT_EQ(out.replies.at(71).status.error().code, ErrorCode::Unavailable);
  feed(StopAsked{id, StopCause::Asked, 72});
  pass(seconds(1));
  sync();
  EXPECT_EQ(out.replies.at(72).state, JobState::Cancelled);
  EXPECT_FALSE(is_live(id));
}

TEST_F(DecideJob, AnEndBehindALostRecordIsNotTakenForStored) {
  add_host("a", {worker("w")});
  const JobId id = submit_task();
  end_attempt(AttemptEnd::Completed, 1);
  ASSERT_THAT(out.writes, SizeIs(2));  // Dispatched, Ended
  out.writes.clear();
  feed(Written{id, 1, WriteOutcome::Failed});
  feed(Written{id, 2, WriteOutcome::Conflict});
  EXPECT_TRUE(is_live(id));
  pass(seconds(1));
  ASSERT_THAT(out.writes, SizeIs(1));
  EXPECT_EQ(out.writes[0].expected_seq, 1U);
  sync();
  EXPECT_FALSE(is_live(id));
  EXPECT_EQ(told_end().state, JobState::Completed);
}

TEST_F(DecideJob, AJobThatCouldNotBeStoredIsRefused) {
  add_host("a", {worker("w")});
  const JobId id = submit();
  sync(WriteOutcome::Failed);
  EXPECT_FALSE(is_live(id));
  EXPECT_EQ(out.replies.at(1).status.error().code, ErrorCode::Unavailable);
  submit();
  sync(WriteOutcome::Conflict);
  EXPECT_EQ(out.replies.at(2).status.error().code, ErrorCode::Conflict);
}

TEST_F(DecideJob, ALostAttemptGoesOnElsewhereFromWhatWasTold) {
  add_host("a", {worker("w")});
  add_host("b", {worker("x")});
  const JobId id = submit_task();
  begin_attempt();
  const AttemptOrder first = out.attempts.back();
  EXPECT_FALSE(first.resumes);
  now += Millis(100);
  end_attempt(AttemptEnd::Lost, 12, LossCause::Link);
  ASSERT_THAT(out.attempts, SizeIs(2));
  const AttemptOrder second = out.attempts.back();
  EXPECT_TRUE(second.resumes);
  EXPECT_TRUE(second.is_exact);
  EXPECT_EQ(second.attempt.number, 2U);
  EXPECT_EQ(second.attempt.boot, 3U);
  EXPECT_EQ(second.from_host, first.host);
  now += Millis(40);
  begin_attempt();
  EXPECT_EQ(out.notices.back().kind, NoticeKind::Migrated);
  EXPECT_EQ(out.notices.back().at_token, 12U);
  EXPECT_NEAR(out.notices.back().gap_ms, 40, 1);
  EXPECT_EQ(phase(id), Phase::Running);
}

TEST_F(DecideJob, AWorkerThatCountsLateKeepsItsTrust) {
  add_host("a", {worker("w")});
  const auto ask = [this](std::uint64_t number) {
    SubmittedRecord facts{.model = kModel, .submitted_ms = wall(), .prompt_tokens = 1000};
    feed(Submitted{.job = {6, number}, .facts = facts, .prefix = {11, 12, 13, 14}});
    sync();
  };
  ask(1);
  begin_attempt();
  ask(2);
  ASSERT_GT(job({6, 2}).predicted_cached, 0);
  const float trust = fleet.models[find_model(fleet, kModel)].views[0].trust;
  feed(AttemptStarted{out.attempts.back().attempt});  // OpenAI's streams say it at their end
  EXPECT_EQ(fleet.models[find_model(fleet, kModel)].views[0].trust, trust);
}

TEST_F(DecideJob, LateAndRepeatedEventsAreDropped) {
  add_host("a", {worker("w")});
  add_host("b", {worker("x")});
  const JobId id = submit_task();
  const AttemptId first = out.attempts.back().attempt;
  end_attempt(AttemptEnd::Lost, 3, LossCause::Link);
  EXPECT_EQ(phase(id), Phase::Dispatched);
  const std::uint64_t late = fleet.counters.late_events;
  feed(AttemptEnded{.attempt = first, .end = AttemptEnd::Completed});
  feed(AttemptStarted{first});
  AttemptId other_boot = out.attempts.back().attempt;
  other_boot.boot = 2;
  feed(AttemptEnded{.attempt = other_boot, .end = AttemptEnd::Completed});
  feed(AttemptEnded{.attempt = {{9, 9}, 3, 1}, .end = AttemptEnd::Completed});
  EXPECT_EQ(phase(id), Phase::Dispatched);
  EXPECT_EQ(fleet.counters.late_events, late + 4);
}

TEST_F(DecideJob, ARequestThatKilledTwoWorkersIsNotTriedOnAThird) {
  add_host("a", {worker("w")});
  add_host("b", {worker("x")});
  add_host("c", {worker("y")});
  const JobId id = submit_task();
  // The stream is cut at once, the cause comes later by the pool; the first move does not wait.
  const HostId first = out.attempts.back().host;
  SeenWorker dead = worker(out.attempts.back().worker);
  dead.state = SeenState::Ended;
  dead.cause = LossCause::Crash;
  end_attempt(AttemptEnd::Lost, 4);
  ASSERT_THAT(out.attempts, SizeIs(2));
  feed(report(first, {dead}));
  EXPECT_EQ(job(id).suspicion.kills, 1);
  const HostId second = out.attempts.back().host;
  EXPECT_NE(second, first);
  dead.id = out.attempts.back().worker;
  end_attempt(AttemptEnd::Lost, 4);
  EXPECT_EQ(phase(id), Phase::Moving) << "waits for the cause";
  EXPECT_THAT(out.attempts, SizeIs(2));
  feed(report(second, {dead}));
  EXPECT_EQ(phase(id), Phase::Closing);
  sync();
  EXPECT_EQ(told_end().state, JobState::Failed);
  EXPECT_THAT(told_end().message, HasSubstr("two workers"));
  EXPECT_THAT(out.attempts, SizeIs(2));
}

TEST_F(DecideJob, ACauseThatNobodyTellsAcquits) {
  add_host("a", {worker("w", 1, 1)});
  const JobId id = submit_task();
  end_attempt(AttemptEnd::Lost, 0);
  pass(Millis(250));
  end_attempt(AttemptEnd::Lost, 0);
  EXPECT_EQ(phase(id), Phase::Moving);
  EXPECT_THAT(out.attempts, SizeIs(2));
  pass(seconds(6));
  EXPECT_THAT(out.attempts, SizeIs(3));
  EXPECT_EQ(phase(id), Phase::Dispatched);
}

TEST_F(DecideJob, AnOlderLossOnTheSameWorkerDoesNotHideItsDeath) {
  add_host("a", {worker("w", 1, 1)});
  const JobId id = submit_task();
  end_attempt(AttemptEnd::Lost, 0);  // its link broke
  pass(Millis(4000));
  ASSERT_THAT(out.attempts, SizeIs(2));
  end_attempt(AttemptEnd::Lost, 0);  // now it has died
  pass(Millis(1500));
  SeenWorker dead = worker("w", 1, 1);
  dead.state = SeenState::Ended;
  dead.cause = LossCause::Crash;
  feed(report("a", {dead}));
  EXPECT_EQ(job(id).suspicion.kills, 1);
  EXPECT_EQ(job(id).suspicion.pending, 0);
}

TEST_F(DecideJob, ARefusedJobGoesBackToTheFront) {
  add_host("a", {worker("w", 1, 1)});
  const JobId first = submit_task();
  const JobId second = submit_task();
  end_attempt(AttemptEnd::Refused);
  EXPECT_EQ(phase(first), Phase::Queued);
  EXPECT_THAT(out.attempts, SizeIs(1)) << "not there again at once";
  pass(seconds(1));
  ASSERT_THAT(out.attempts, SizeIs(2));
  EXPECT_EQ(out.attempts.back().attempt.job, first);
  EXPECT_EQ(phase(second), Phase::Queued);
}

TEST_F(DecideJob, AnErrorThatOthersWouldGiveTooEndsIt) {
  add_host("a", {worker("w")});
  submit_task();
  end_attempt(AttemptEnd::Failed);
  sync();
  EXPECT_EQ(told_end().state, JobState::Failed);
  EXPECT_EQ(told_end().code, ErrorCode::InvalidArgument);
}

TEST_F(DecideJob, CancelEndsAWaitingJobAtOnceAndARunningOneAfterItsAttempt) {
  add_host("a", {worker("w", 1, 1)});
  const JobId running = submit_task();
  const JobId waiting = submit_task();
  feed(StopAsked{waiting, StopCause::Asked, 70});
  EXPECT_EQ(phase(waiting), Phase::Closing);
  feed(StopAsked{running, StopCause::Asked, 71});
  feed(StopAsked{running, StopCause::Asked, 72});
  EXPECT_EQ(phase(running), Phase::Ending);
  ASSERT_THAT(out.cuts, SizeIs(1));
  sync();
  EXPECT_EQ(out.replies.at(70).state, JobState::Cancelled);
  EXPECT_FALSE(out.replies.contains(71));
  now += Millis(30);
  end_attempt(AttemptEnd::Completed, 9);  // it was done by chance
  sync();
  EXPECT_EQ(told_end().state, JobState::Cancelled) << "that was promised";
  EXPECT_NEAR(out.replies.at(71).stop_ms, 30, 1);
  EXPECT_TRUE(out.replies.contains(72));
  feed(StopAsked{running, StopCause::Asked, 73});
  EXPECT_EQ(out.replies.at(73).status.error().code, ErrorCode::NotFound);
}

TEST_F(DecideJob, ADeadlineEndsItWhereverItIs) {
  add_host("a", {worker("w", 1, 1)});
  const JobId running = submit_task({.deadline_ms = kWall + 5000});
  const JobId waiting = submit_task({.deadline_ms = kWall + 5000});
  pass(seconds(5));
  EXPECT_EQ(phase(running), Phase::Ending);
  EXPECT_EQ(phase(waiting), Phase::Closing);
  end_attempt(AttemptEnd::Cut);
  sync();
  EXPECT_EQ(told_end().state, JobState::Failed);
  EXPECT_EQ(told_end().code, ErrorCode::DeadlineExceeded);
  submit({.deadline_ms = kWall + 4000});
  EXPECT_EQ(out.replies.at(next_job).status.error().code, ErrorCode::DeadlineExceeded);
}

TEST_F(DecideJob, AFollowedTaskHasTenSecondsToBeFollowedAgain) {
  add_host("a", {worker("w")});
  const JobId id = submit_task({.holder = Holder::Followed});
  feed(FollowersChanged{id, 0});
  pass(seconds(9));
  feed(FollowersChanged{id, 1});
  pass(seconds(9));
  EXPECT_EQ(phase(id), Phase::Dispatched);
  feed(FollowersChanged{id, 0});
  pass(seconds(10));
  EXPECT_EQ(phase(id), Phase::Ending);
  feed(report("a", {worker("w")}));
  const JobId held = submit({.holder = Holder::Connection});
  feed(FollowersChanged{held, 0});
  EXPECT_EQ(phase(held), Phase::Ending) << "gone with its connection";
  const JobId alone = submit_task();
  feed(FollowersChanged{alone, 0});
  pass(seconds(14));
  EXPECT_NE(phase(alone), Phase::Ending);
}

TEST_F(DecideJob, ACountOfFollowersThatComesLateIsNotBelieved) {
  add_host("a", {worker("w")});
  const JobId id = submit_task({.holder = Holder::Followed});
  feed(FollowersChanged{id, 1, 1});
  feed(FollowersChanged{id, 1, 3});  // one went and another came: the second is told first
  feed(FollowersChanged{id, 0, 2});
  pass(seconds(20));
  EXPECT_EQ(phase(id), Phase::Dispatched) << "somebody follows it";
  feed(FollowersChanged{id, 0, 4});
  pass(seconds(10));
  EXPECT_EQ(phase(id), Phase::Ending);
}

TEST_F(DecideJob, AnOrderlyEndCutsConnectionsAndLeavesTasksAlone) {
  add_host("a", {worker("w")});
  const JobId task = submit_task({.holder = Holder::Followed});
  const JobId running = submit({.holder = Holder::Connection});
  const JobId waiting = submit({.holder = Holder::Connection});
  feed(ShuttingDown{});
  EXPECT_EQ(phase(task), Phase::Dispatched);
  EXPECT_EQ(phase(running), Phase::Ending);
  EXPECT_FALSE(is_live(waiting));
  EXPECT_EQ(told_end().code, ErrorCode::Unavailable);
  end_attempt(AttemptEnd::Cut, 20);
  EXPECT_EQ(told_end().state, JobState::Cancelled);
  EXPECT_EQ(told_end().tokens_out, 20U);
  submit();
  EXPECT_EQ(out.replies.at(next_job).status.error().code, ErrorCode::Unavailable);
}

TEST_F(DecideJob, ARevokedKeyCutsItsJobs) {
  add_host("a", {worker("w")});
  const JobId mine = submit_task({.key = {7}});
  const JobId other = submit_task({.key = {8}});
  feed(KeyChanged{{7}, {.name = "k", .revoked = true}});
  EXPECT_EQ(phase(mine), Phase::Ending);
  EXPECT_EQ(phase(other), Phase::Dispatched);
  submit({.key = {7}});
  EXPECT_EQ(out.replies.at(next_job).status.error().code, ErrorCode::Unauthorized);
}

TEST_F(DecideJob, AFollowedTaskThatNobodyEverFollowsIsCancelled) {
  add_host("a", {worker("w")});
  const JobId id = submit_task({.holder = Holder::Followed});
  const JobId followed = submit_task({.holder = Holder::Followed});
  feed(FollowersChanged{followed, 1});
  const JobId detached = submit_task();
  pass(seconds(9));
  EXPECT_EQ(phase(id), Phase::Dispatched);
  pass(seconds(1));
  EXPECT_EQ(phase(id), Phase::Ending);
  EXPECT_EQ(phase(followed), Phase::Dispatched);
  EXPECT_NE(phase(detached), Phase::Ending);
}

TEST_F(DecideJob, AdmissionIsBoundedForAllAndForEachKey) {
  add_host("a", {worker("w", 1, 1)});
  for (int i = 0; i < 4; ++i) submit_task({.key = {1}});
  submit_task({.key = {2}});
  submit({.key = {1}});
  EXPECT_EQ(out.replies.at(6).status.error().code, ErrorCode::QueueFull) << "half of it";
  EXPECT_GE(out.replies.at(6).retry_after_ms, 1000);
  for (int i = 0; i < 3; ++i) submit_task({.key = {2}});
  submit({.key = {3}});
  EXPECT_EQ(out.replies.at(10).status.error().code, ErrorCode::QueueFull);
  submit({.model = {77, 77}});
  EXPECT_EQ(out.replies.at(11).status.error().code, ErrorCode::NotFound);
  EXPECT_EQ(out.replies.at(9).position, 7U);
  EXPECT_GT(out.replies.at(9).predicted_start_ms, 0);
}

TEST_F(DecideJob, AnAnswerWithoutALimitTakesTheContextFromItsKeysDay) {
  add_host("a", {worker("w")});
  feed(KeyChanged{{7}, {.name = "k", .tokens_per_day = 5000}});
  feed(KeyChanged{{8}, {.name = "l", .tokens_per_day = 4095}});
  const auto ask = [this](std::uint64_t key, JobKind kind) {
    feed(Submitted{.request = ++next_job,
                   .job = {5, next_job},
                   .facts = {.key = {key},
                             .kind = kind,
                             .model = kModel,
                             .model_name = "m",
                             .submitted_ms = wall(),
                             .prompt_tokens = 10}});
    sync();
    return out.replies[next_job].status;
  };
  EXPECT_EQ(ask(8, JobKind::Execute).error().code, ErrorCode::Forbidden) << "it may need 4096";
  EXPECT_TRUE(ask(8, JobKind::Embedding).ok()) << "it has no answer";
  EXPECT_TRUE(ask(7, JobKind::Execute).ok());
  EXPECT_EQ(ask(7, JobKind::Execute).error().code, ErrorCode::QueueFull);
  end_attempt(AttemptEnd::Completed, 100);
  sync();
  EXPECT_TRUE(ask(7, JobKind::Execute).ok()) << "what was not needed is given back";
}

TEST_F(DecideJob, AKeyMayUseTheWholeQueueUntilAnotherWantsRoom) {
  add_host("a", {worker("w", 1, 1)});
  for (int i = 0; i < 8; ++i) submit_task({.key = {1}});
  submit({.key = {1}});
  const Reply full = out.replies.at(9);
  EXPECT_EQ(full.status.error().code, ErrorCode::QueueFull);
  EXPECT_THAT(full.status.error().message, HasSubstr("the queue is full: 8 jobs"));
  EXPECT_NEAR(full.retry_after_ms, 2010, 50) << "10 tokens are read, 100 written at 50 a second";
  submit({.key = {2}});
  EXPECT_EQ(out.replies.at(10).status.error().code, ErrorCode::QueueFull);
  end_attempt(AttemptEnd::Completed, 100);
  sync();
  submit({.key = {1}});
  const Reply share = out.replies.at(11);
  EXPECT_EQ(share.status.error().code, ErrorCode::QueueFull) << "the room is the other's";
  EXPECT_THAT(share.status.error().message, HasSubstr("others want room"));
  submit_task({.key = {2}});
  EXPECT_TRUE(out.replies.at(12).status.ok());
}

TEST_F(DecideJob, AKeyThatDoesNotComeBackLeavesItsRoomToOthers) {
  add_host("a", {worker("w", 1, 1)});
  for (int i = 0; i < 8; ++i) submit_task();
  submit({.key = {2}});
  end_attempt(AttemptEnd::Completed, 100);
  sync();
  submit();
  EXPECT_THAT(out.replies.at(10).status.error().message, HasSubstr("those without a key have 7"));
  feed(report("a", {worker("w", 1, 1)}));
  pass(seconds(20));
  feed(report("a", {worker("w", 1, 1)}));
  pass(seconds(20));
  submit_task();
  EXPECT_TRUE(out.replies.at(11).status.ok());
}

TEST_F(DecideJob, AJobThatOutlivesItsPredictionMovesTheTimeToTryAgain) {
  add_host("a", {worker("w", 1, 1)});
  for (int i = 0; i < 8; ++i) submit_task();
  begin_attempt();
  for (int i = 0; i < 4; ++i) {
    feed(report("a", {worker("w", 1, 1)}));
    pass(seconds(10));
  }
  submit();
  EXPECT_NEAR(out.replies.at(9).retry_after_ms, 10'000, 500) << "a quarter of its 40 s";
}

TEST_F(DecideJob, PinnedToAHostItWaitsForThatHost) {
  add_host("a", {worker("w")});
  add_host("b", {worker("x", 1, 1)});
  submit_task({.mode = Mode::Pin, .pin_host = "b"});
  EXPECT_EQ(out.attempts.back().host, "b");
  const JobId second = submit_task({.mode = Mode::Pin, .pin_host = "b"});
  EXPECT_EQ(phase(second), Phase::Queued);
  const JobId third = submit_task();
  EXPECT_EQ(phase(third), Phase::Dispatched) << "others pass";
  submit({.mode = Mode::Pin, .pin_host = "nowhere"});
  EXPECT_EQ(out.replies.at(next_job).status.error().code, ErrorCode::NotFound);
}

}  // namespace
}  // namespace llorch::fleet
