#include "pool/policy_life.h"

namespace llorch::pool {
namespace {

TEST(WorkerPolicy, BecomesReadyByItsCallback) {
  Life life;
  EXPECT_THAT(life.step(), ElementsAre(Action::Probe));
  EXPECT_EQ(shown_state(life.facts), PoolWorkerState::Starting);
  EXPECT_THAT(life.healthy(), IsEmpty()) << "anybody may answer on that port";
  note_ready(life.facts);
  EXPECT_THAT(life.step(), ElementsAre(Action::BecameReady));
  EXPECT_EQ(shown_state(life.facts), PoolWorkerState::Ready);
  EXPECT_THAT(life.after(seconds(1)), ElementsAre(Action::Probe));
  life.healthy(2);
  EXPECT_EQ(shown_state(life.facts), PoolWorkerState::Busy);
}

TEST(WorkerPolicy, AnAdoptedWorkerBecomesReadyByItsHealth) {
  Life life;
  life.facts.adopted = true;
  life.step();
  EXPECT_THAT(life.healthy(), ElementsAre(Action::BecameReady));
}

TEST(WorkerPolicy, ADeadlineIsATimeout) {
  Life life;
  life.step();
  life.healthy();
  EXPECT_THAT(life.after(seconds(60)), ElementsAre(Action::EndBegan, Action::SendTerm));
  EXPECT_EQ(life.facts.category, ExitCategory::Timeout);
  EXPECT_THAT(life.after(life.timing.term_patience), ElementsAre(Action::OrderKill));
  EXPECT_THAT(life.end({.has_note = true, .signal = SIGKILL, .ordered = true}),
              ElementsAre(Action::Ended));
  EXPECT_EQ(life.facts.category, ExitCategory::Timeout);
  EXPECT_EQ(shown_state(life.facts), PoolWorkerState::Failed);
}

TEST(WorkerPolicy, OurOwnShortageIsNoFailureOfAWorker) {
  Life life;
  life.ready();
  for (const ErrorCode code : {ErrorCode::OutOfMemory, ErrorCode::QueueFull}) {
    for (int i = 0; i < 100; ++i) {
      life.after(life.timing.health_interval);
      note_health(life.facts, Error{code, "no descriptors"}, life.now);
      EXPECT_THAT(life.step(), Not(Contains(Action::OrderKill)));
    }
  }
  EXPECT_EQ(life.facts.failures, 0);
  EXPECT_EQ(shown_state(life.facts), PoolWorkerState::Ready);
  for (int i = 0; i < life.timing.health_failures; ++i)
    note_health(life.facts, Error{ErrorCode::Unavailable, "refused"}, life.now);
  EXPECT_THAT(life.step(), Contains(Action::OrderKill)) << "its own failures still count";
}

TEST(WorkerPolicy, StopGoesFromAskingToKilling) {
  Life life;
  life.ready();
  EXPECT_THAT(life.stop(), ElementsAre(Action::EndBegan, Action::AskShutdown));
  EXPECT_EQ(shown_state(life.facts), PoolWorkerState::Draining);
  EXPECT_THAT(life.stop(), IsEmpty()) << "idempotent";
  EXPECT_THAT(life.after(life.timing.drain_patience), IsEmpty()) << "its last words";
  EXPECT_THAT(life.after(life.timing.drain_grace), ElementsAre(Action::SendTerm));
  EXPECT_THAT(life.after(life.timing.term_patience), ElementsAre(Action::OrderKill));
  EXPECT_THAT(life.after(life.timing.kill_patience), ElementsAre(Action::KillKeeper));
  EXPECT_THAT(life.after(seconds(100)), IsEmpty());
  EXPECT_THAT(life.end({}), ElementsAre(Action::Ended));
  EXPECT_EQ(life.facts.category, ExitCategory::Stopped);
  EXPECT_EQ(shown_state(life.facts), PoolWorkerState::Stopped);
}

TEST(WorkerPolicy, AStopHasThePatienceThatWasAskedFor) {
  Life life;
  life.ready();
  ask_stop(life.facts, seconds(600));
  EXPECT_THAT(life.step(), ElementsAre(Action::EndBegan, Action::AskShutdown));
  EXPECT_EQ(drain_patience(life.facts, life.timing), seconds(600));
  EXPECT_THAT(life.after(seconds(500)), IsEmpty());
  // Asked again it counts anew, and the worker hears of it.
  ask_stop(life.facts, seconds(0));
  EXPECT_THAT(life.step(), ElementsAre(Action::AskShutdown));
  EXPECT_EQ(drain_patience(life.facts, life.timing), seconds(0));
  EXPECT_THAT(life.step(), IsEmpty());
  EXPECT_THAT(life.after(life.timing.drain_grace), ElementsAre(Action::SendTerm));
}

TEST(WorkerPolicy, AWorkerThatCannotBeAskedIsSignalledAtOnce) {
  Life life;
  life.stop();
  note_shutdown(life.facts, /*failed=*/true);
  EXPECT_THAT(life.step(), ElementsAre(Action::SendTerm)) << "it does not listen yet";
}

TEST(WorkerPolicy, AStopThatTookAKillSaysSo) {
  Life life;
  life.ready();
  life.stop();
  life.end({.has_note = true, .signal = SIGKILL, .ordered = true});
  EXPECT_THAT(life.facts.reason, HasSubstr("did not end by itself and was killed"));
}

TEST(WorkerPolicy, AWorkerThatDoesNotAnswerHangs) {
  Life life;
  life.ready();
  for (int i = 1; i <= life.timing.health_failures; ++i) {
    EXPECT_THAT(life.facts.category, ExitCategory::None);
    life.after(seconds(1));
    ASSERT_TRUE(life.facts.probing);
    note_health(life.facts, Error{ErrorCode::DeadlineExceeded, "no answer"}, life.now);
  }
  EXPECT_THAT(life.step(), ElementsAre(Action::EndBegan, Action::OrderKill));
  EXPECT_EQ(life.facts.category, ExitCategory::Hang);
  EXPECT_THAT(life.facts.reason, HasSubstr("no answer"));
}

TEST(WorkerPolicy, FailedAnswersMustBeInARow) {
  Life life;
  life.ready();
  for (int i = 0; i < 50; ++i) {
    life.after(seconds(1));
    if (i % life.timing.health_failures == 0) {
      life.healthy();
    } else {
      note_health(life.facts, Error{ErrorCode::Unavailable, "no"}, life.now);
      life.step();
    }
  }
  EXPECT_EQ(life.facts.phase, Phase::Serving);
}

TEST(WorkerPolicy, ALoadingWorkerMayBeSilent) {
  Life life;
  for (int i = 0; i < 20; ++i) {
    life.after(seconds(1));
    note_health(life.facts, Error{ErrorCode::Unavailable, "refused"}, life.now);
  }
  EXPECT_EQ(life.facts.phase, Phase::Starting);
  note_ready(life.facts);
  EXPECT_THAT(life.step(), ::testing::Contains(Action::BecameReady));
  EXPECT_EQ(life.facts.phase, Phase::Serving) << "no hang";
}

TEST(WorkerPolicy, AStartThatWasCutOffIsNoFailure) {
  Life life;
  life.facts.adopted = true;
  life.end({.never_ran = true});
  EXPECT_EQ(shown_state(life.facts), PoolWorkerState::Stopped);
  EXPECT_THAT(life.facts.reason, HasSubstr("nothing had run yet"));
}

TEST(WorkerPolicy, AnUnhealthyWorkerHangs) {
  Life life;
  life.ready();
  HealthAnswer answer;
  answer.report.status = contract::WorkerStatus::Unhealthy;
  answer.report.reason = "the engine stopped";
  for (int i = 0; i < life.timing.health_failures; ++i) {
    life.after(seconds(1));
    note_health(life.facts, answer, life.now);
  }
  EXPECT_THAT(life.step(), ElementsAre(Action::EndBegan, Action::OrderKill));
  EXPECT_THAT(life.facts.reason, HasSubstr("the engine stopped"));
}

TEST(WorkerPolicy, WorkWithoutATokenIsAHang) {
  Life life;
  life.ready();
  std::int64_t age_ms = 0;
  // Long idle first: the age of the last token alone means nothing.
  for (int i = 0; i < 200; ++i, age_ms += 1000) {
    life.after(seconds(1));
    ASSERT_THAT(life.healthy(0, age_ms), IsEmpty());
  }
  int busy_seconds = 0;
  for (;; age_ms += 1000, ++busy_seconds) {
    life.after(seconds(1));
    if (!life.healthy(1, age_ms).empty()) break;
    ASSERT_LT(busy_seconds, 100);
  }
  EXPECT_EQ(life.facts.category, ExitCategory::Hang);
  EXPECT_EQ(life.facts.phase, Phase::Killing);
  EXPECT_EQ(busy_seconds, 61) << "a minute after the work was first seen";
}

TEST(WorkerPolicy, RequestsThatOnlyWaitAreWorkToo) {
  Life life;
  life.ready();
  HealthAnswer answer;
  answer.report.status = contract::WorkerStatus::Healthy;
  answer.report.queue_depth = 3;
  for (int i = 0; i < 70 && life.facts.phase == Phase::Serving; ++i) {
    life.after(seconds(1));
    note_health(life.facts, answer, life.now);
    life.step();
  }
  EXPECT_EQ(life.facts.category, ExitCategory::Hang);
}

TEST(WorkerPolicy, ALongPromptIsNoHangWhileItIsRead) {
  Life life;
  life.ready();
  for (int i = 0; i < 300; ++i) {
    life.after(seconds(1));
    life.healthy(1, 1000 * i, i / 20);  // a forward pass takes 20 s
  }
  EXPECT_EQ(life.facts.phase, Phase::Serving);
}

TEST(WorkerPolicy, ALongIdleWorkerIsAskedForAToken) {
  Life life;
  life.ready();
  std::vector<Action> last;
  for (int i = 0; i < 300; ++i) {
    last = life.after(seconds(1));
    life.healthy();
  }
  EXPECT_THAT(last, ElementsAre(Action::Probe, Action::ProbeToken));
  note_token_probe(life.facts, /*failed=*/false);
  life.step();
  EXPECT_EQ(life.facts.phase, Phase::Serving);
  note_token_probe(life.facts, /*failed=*/true);
  EXPECT_THAT(life.step(), ElementsAre(Action::EndBegan, Action::OrderKill));
  EXPECT_EQ(life.facts.category, ExitCategory::Hang);
}

TEST(WorkerPolicy, TheNextPortIsTriedButNotForEver) {
  Life life;
  EndFacts taken = Life::exited(1);
  taken.port_taken = true;
  for (int i = 0; i < kPortTriesMax; ++i) {
    life.step();
    ASSERT_THAT(life.end(taken), ::testing::Contains(Action::SpawnAgain)) << i;
    note_spawned(life.facts, life.now, life.now + seconds(60));
  }
  EXPECT_THAT(life.end(taken), ElementsAre(Action::Ended));
  EXPECT_EQ(life.facts.category, ExitCategory::StartFailed);
}

TEST(WorkerPolicy, AGpusMemoryIsSeenBack) {
  Life life(/*gpu=*/true);
  life.ready();
  life.stop();
  EXPECT_THAT(life.end(Life::exited(0)), ElementsAre(Action::CheckMemory));
  EXPECT_EQ(shown_state(life.facts), PoolWorkerState::Draining);
  note_memory(life.facts, /*is_back=*/false, life.now);
  EXPECT_THAT(life.step(), IsEmpty());
  EXPECT_THAT(life.after(milliseconds(100)), ElementsAre(Action::CheckMemory));
  note_memory(life.facts, /*is_back=*/true, life.now);
  EXPECT_THAT(life.step(), ElementsAre(Action::Ended));
  EXPECT_EQ(life.facts.reason, "was asked to stop");

  Life lost(/*gpu=*/true);
  lost.ready();
  lost.end(Life::killed_by(SIGSEGV));
  EXPECT_THAT(lost.after(lost.timing.reclaim_patience), ElementsAre(Action::Ended));
  EXPECT_EQ(lost.facts.category, ExitCategory::Crash);
  EXPECT_THAT(lost.facts.reason, HasSubstr("was not seen back within 10 s"));
}

TEST(WorkerPolicy, RestartComesBackToTheBeginning) {
  Life life;
  life.ready();
  ask_restart(life.facts);
  EXPECT_THAT(life.step(), ElementsAre(Action::EndBegan, Action::AskShutdown));
  EXPECT_THAT(life.end(Life::exited(0)), ElementsAre(Action::Plan)) << "not an end";
  EXPECT_EQ(shown_state(life.facts), PoolWorkerState::Starting);
  EXPECT_EQ(life.facts.category, ExitCategory::None);
  note_spawned(life.facts, life.now, life.now + seconds(60));
  EXPECT_THAT(life.ready(), ElementsAre(Action::BecameReady));

  Life failed;
  failed.end(Life::exited(1));
  ask_restart(failed.facts);
  EXPECT_THAT(failed.step(), ElementsAre(Action::Plan));
  note_not_spawned(failed.facts, "does not fit");
  EXPECT_THAT(failed.step(), ElementsAre(Action::Ended));
  EXPECT_EQ(failed.facts.category, ExitCategory::StartFailed);
  EXPECT_EQ(failed.facts.reason, "does not fit");
}

TEST(WorkerPolicy, AStopTakesARestartBack) {
  Life life;
  life.ready();
  ask_restart(life.facts);
  life.step();
  life.stop();
  EXPECT_THAT(life.end(Life::exited(0)), ElementsAre(Action::Ended));

  Life planning;
  planning.end(Life::exited(1));
  ask_restart(planning.facts);
  planning.step();
  EXPECT_THAT(planning.stop(), ElementsAre(Action::Ended));
  EXPECT_EQ(shown_state(planning.facts), PoolWorkerState::Stopped);
}

struct Ending {
  std::string_view name;
  EndFacts end;
  bool was_ready;
  ExitCategory category;
  std::string_view reason;
};

TEST(WorkerPolicy, SaysWhyAWorkerEnded) {
  const std::vector<Ending> endings = {
      {"bad model",
       {.has_note = true, .code = 1, .last_line = "no such file"},
       false,
       ExitCategory::StartFailed,
       "exited with code 1 before it was ready: no such file"},
      {"crash at start",
       {.has_note = true, .signal = SIGSEGV},
       false,
       ExitCategory::StartFailed,
       "signal 11"},
      {"crash",
       {.has_note = true, .signal = SIGABRT, .last_line = "CHECK failed"},
       true,
       ExitCategory::Crash,
       "was ended by signal 6 (Aborted): CHECK failed"},
      {"code", {.has_note = true, .code = 3}, true, ExitCategory::Crash, "exited with code 3"},
      {"somebody's shutdown", {.has_note = true}, true, ExitCategory::Stopped, "asked it to"},
      {"kill -9", {.has_note = true, .signal = SIGKILL}, true, ExitCategory::Crash, "signal 9"},
      {"out of memory",
       {.has_note = true, .signal = SIGKILL, .oom_kill = true},
       true,
       ExitCategory::OomKill,
       "smaller context"},
      {"out of memory at start",
       {.has_note = true, .signal = SIGKILL, .oom_kill = true},
       false,
       ExitCategory::OomKill,
       "memory"},
      {"another's oom kill",
       {.has_note = true, .signal = SIGSEGV, .oom_kill = true},
       true,
       ExitCategory::Crash,
       "signal 11"},
      {"keeper killed", {}, true, ExitCategory::Crash, "its keeper was killed"},
      {"keeper killed at start", {}, false, ExitCategory::Crash, "its keeper was killed"},
      {"keeper killed at once",
       {.never_ran = true},
       false,
       ExitCategory::StartFailed,
       "its keeper was killed before"},
      {"keeper told", {.has_note = true, .told = true}, true, ExitCategory::Stopped, "SIGTERM"},
      {"orphan",
       {.has_note = true, .signal = SIGKILL, .orphaned = true},
       true,
       ExitCategory::Stopped,
       "no pool manager"},
      {"reboot", {.rebooted = true}, true, ExitCategory::Stopped, "restarted"},
      {"no program",
       {.has_note = true, .start_error = "x cannot be started"},
       false,
       ExitCategory::StartFailed,
       "x cannot be started"},
  };
  for (const Ending& ending : endings) {
    SCOPED_TRACE(ending.name);
    Life life;
    if (ending.was_ready) life.ready();
    life.end(ending.end);
    EXPECT_EQ(life.facts.phase, Phase::Ended);
    EXPECT_EQ(life.facts.category, ending.category);
    EXPECT_THAT(life.facts.reason, HasSubstr(std::string(ending.reason)));
  }
}

TEST(WorkerPolicy, ALineOfItsWorkIsNoReason) {
  Life life;
  life.ready();
  life.end({.has_note = true,
            .signal = SIGKILL,
            .last_line = R"({"ts":"t","level":"info","message":"job done"})"});
  EXPECT_EQ(life.facts.reason, "was ended by signal 9 (Killed)");
  Life other;
  other.ready();
  const std::string line = R"({"ts":"t","level":"error","message":"cannot accept"})";
  other.end({.has_note = true, .code = 1, .last_line = line});
  EXPECT_EQ(other.facts.reason, "exited with code 1: " + line);
}

}  // namespace
}  // namespace llorch::pool
