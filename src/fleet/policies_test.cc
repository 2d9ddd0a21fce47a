// Failover, hosts and keys: every rule by hand, then by chance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/dice.h"
#include "fleet/failover_policy.h"
#include "fleet/host_policy.h"
#include "fleet/key_policy.h"

namespace llorch::fleet {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

const TimePoint kStart{seconds(1000)};

TEST(Failover, OnlyDeathsThatARequestCanCauseCount) {
  for (const LossCause cause : {LossCause::Crash, LossCause::OutOfMemory, LossCause::Hang}) {
    Suspicion suspicion;
    note_loss(suspicion, cause, 5);
    EXPECT_EQ(suspicion.kills, 1) << name(cause);
  }
  for (const LossCause cause :
       {LossCause::Host, LossCause::Link, LossCause::WorkerError, LossCause::Refused}) {
    Suspicion suspicion;
    note_loss(suspicion, cause, 5);
    EXPECT_FALSE(suspicion.is_suspect()) << name(cause);
  }
}

TEST(Failover, ASuspectIsClearedByGettingPastTheFatalPlace) {
  Suspicion suspicion;
  note_loss(suspicion, LossCause::Crash, 100);
  note_told(suspicion, 107);
  EXPECT_TRUE(suspicion.is_suspect());
  note_told(suspicion, 108);
  EXPECT_FALSE(suspicion.is_suspect());
}

TEST(Failover, AnUnknownCauseMakesASuspectUntilItIsKnown) {
  Suspicion suspicion;
  note_loss(suspicion, std::nullopt, 1);
  EXPECT_TRUE(suspicion.is_suspect());
  EXPECT_EQ(suspicion.kills, 0);
  Suspicion acquitted = suspicion;
  note_cause(acquitted, LossCause::Link);
  EXPECT_FALSE(acquitted.is_suspect());
  note_cause(suspicion, LossCause::Crash);
  EXPECT_EQ(suspicion.kills, 1);
  note_cause(suspicion, LossCause::Crash);
  EXPECT_EQ(suspicion.kills, 1) << "a cause counts once";
}

TEST(Failover, JudgesEachLoss) {
  const LossFacts fine{.remaining_ms = 1000, .replay_ms = 10};
  EXPECT_EQ(judge_loss(fine), LossVerdict::Move);
  LossFacts facts = fine;
  facts.suspicion = {.kills = 1};
  EXPECT_EQ(judge_loss(facts), LossVerdict::Move) << "one death may be a chance";
  facts.suspicion.pending = 1;
  EXPECT_EQ(judge_loss(facts), LossVerdict::AwaitCause);
  facts.suspicion = {.pending = 1};
  EXPECT_EQ(judge_loss(facts), LossVerdict::Move) << "the first move does not wait";
  facts.suspicion = {.pending = 2};
  EXPECT_EQ(judge_loss(facts), LossVerdict::AwaitCause);
  facts.suspicion = {.kills = 2};
  EXPECT_EQ(judge_loss(facts), LossVerdict::Poison);
  facts = fine;
  facts.moves = kMovesMax;
  EXPECT_EQ(judge_loss(facts), LossVerdict::TooManyMoves);
  facts = fine;
  facts.has_told = true;
  EXPECT_EQ(judge_loss(facts), LossVerdict::Move);
  facts.can_resume = false;
  EXPECT_EQ(judge_loss(facts), LossVerdict::CannotResume);
  facts = fine;
  facts.remaining_ms = 9;
  EXPECT_EQ(judge_loss(facts), LossVerdict::TooLate);
}

TEST(Breaker, ClosesAfterThreeFailuresAndTriesOneJob) {
  Breaker breaker;
  TimePoint now = kStart;
  breaker.note_failure(now);
  breaker.note_failure(now);
  EXPECT_TRUE(breaker.lets_in(now));
  breaker.note_failure(now);
  EXPECT_FALSE(breaker.lets_in(now));
  now += seconds(5);
  EXPECT_TRUE(breaker.lets_in(now));
  breaker.note_start(now);
  EXPECT_FALSE(breaker.lets_in(now)) << "one at a time";
  breaker.note_failure(now);
  EXPECT_FALSE(breaker.lets_in(now + seconds(9)));
  EXPECT_TRUE(breaker.lets_in(now + seconds(10)));
  now += seconds(10);
  breaker.note_start(now);
  breaker.note_success();
  breaker.note_failure(now);
  EXPECT_TRUE(breaker.lets_in(now)) << "success forgets all";
}

TEST(Breaker, FailuresFarApartDoNotAddUp) {
  Breaker breaker;
  for (int i = 0; i < 20; ++i) breaker.note_failure(kStart + i * seconds(31));
  EXPECT_TRUE(breaker.lets_in(kStart + seconds(1000)));
}

TEST(Breaker, PausesAtMostFiveMinutes) {
  Breaker breaker;
  TimePoint now = kStart;
  for (int i = 0; i < 3; ++i) breaker.note_failure(now);
  for (int i = 0; i < 20; ++i) {
    now = std::max(now, breaker.opens_at());
    breaker.note_start(now);
    breaker.note_failure(now);
    EXPECT_LE(breaker.opens_at() - now, seconds(300));
  }
  EXPECT_EQ(breaker.opens_at() - now, seconds(300));
  now = breaker.opens_at();
  breaker.note_start(now);
  breaker.note_gone();
  EXPECT_TRUE(breaker.lets_in(now)) << "the trial said nothing";
}

// A host under a clock of its own.
struct HostLife {
  explicit HostLife(HostKind kind) { facts.kind = kind; }
  HostStep step() {
    HostStep result = next_step(facts, now);
    EXPECT_THAT(next_step(facts, now).actions, IsEmpty()) << "an action was given twice";
    return result;
  }
  HostStep done(HostAction action, bool ok, bool is_final = false) {
    note_step(facts, action, {ok, ok ? "" : "it did not work", is_final}, now);
    return step();
  }
  HostStep installed(bool is_new_version) {
    note_step(facts, HostAction::Install, {.ok = true, .is_new_version = is_new_version}, now);
    return step();
  }
  HostStep seen() {
    note_seen(facts, now);
    return step();
  }

  TimePoint now = kStart;
  HostFacts facts;
};

TEST(HostPolicy, AHostOverSshIsSetUpStepByStep) {
  HostLife life(HostKind::Ssh);
  EXPECT_THAT(life.step().actions, IsEmpty());
  ask_up(life.facts, life.now);
  EXPECT_THAT(life.step().actions, ElementsAre(HostAction::Preflight));
  EXPECT_THAT(life.done(HostAction::Preflight, true).actions, ElementsAre(HostAction::Install));
  EXPECT_THAT(life.done(HostAction::Install, true).actions, ElementsAre(HostAction::Start));
  EXPECT_EQ(life.facts.state, HostState::Starting);
  EXPECT_THAT(life.done(HostAction::Start, true).actions, IsEmpty());
  EXPECT_FALSE(takes_work(life.facts));
  EXPECT_TRUE(life.seen().came_up);
  EXPECT_TRUE(takes_work(life.facts));
}

TEST(HostPolicy, AFinalReasonWaitsForThePerson) {
  HostLife life(HostKind::Ssh);
  ask_up(life.facts, life.now);
  life.step();
  life.done(HostAction::Preflight, false, /*is_final=*/true);
  EXPECT_EQ(life.facts.state, HostState::Gone);
  EXPECT_EQ(life.facts.reason, "it did not work");
  life.now += seconds(3600);
  EXPECT_THAT(life.step().actions, IsEmpty());
  ask_up(life.facts, life.now);
  EXPECT_THAT(life.step().actions, ElementsAre(HostAction::Preflight));
  life.done(HostAction::Preflight, false);
  EXPECT_THAT(life.step().actions, IsEmpty());
  life.now += seconds(60);
  EXPECT_THAT(life.step().actions, ElementsAre(HostAction::Preflight)) << "by itself";
}

HostLife started(bool is_new_version) {
  HostLife life(HostKind::Ssh);
  ask_up(life.facts, life.now);
  life.step();
  life.done(HostAction::Preflight, true);
  EXPECT_THAT(life.installed(is_new_version).actions, ElementsAre(HostAction::Start));
  return life;
}

TEST(HostPolicy, ANewVersionThatDoesNotComeUpIsRolledBackOnce) {
  HostLife life = started(/*is_new_version=*/true);
  life.done(HostAction::Start, true);
  life.now += seconds(30);
  EXPECT_THAT(life.step().actions, ElementsAre(HostAction::RollBack));
  life.done(HostAction::RollBack, true);
  life.now += seconds(30);
  EXPECT_TRUE(life.step().was_lost);
  EXPECT_EQ(life.facts.state, HostState::Gone);
}

TEST(HostPolicy, AHostThatWentBackSaysWhy) {
  HostLife life = started(/*is_new_version=*/true);
  EXPECT_THAT(life.done(HostAction::Start, false).actions, ElementsAre(HostAction::RollBack))
      << "at once: what did not start will not answer";
  EXPECT_FALSE(life.seen().came_up) << "it may be anybody's pool until the step has ended";
  life.done(HostAction::RollBack, true);
  EXPECT_TRUE(life.seen().came_up);
  EXPECT_EQ(life.facts.reason, "");
  EXPECT_THAT(life.facts.note, HasSubstr("it runs the version before"));
  EXPECT_THAT(life.facts.note, HasSubstr("it did not work"));

  HostLife first = started(/*is_new_version=*/true);
  first.done(HostAction::Start, false);
  note_step(first.facts, HostAction::RollBack, {.reason = "there is none"}, first.now);
  EXPECT_TRUE(first.step().was_lost);
  EXPECT_EQ(first.facts.reason, "it did not work; going back to the version before: there is none");
}

TEST(HostPolicy, AVersionThatRanBeforeIsNotRolledBack) {
  HostLife life = started(/*is_new_version=*/false);
  EXPECT_TRUE(life.done(HostAction::Start, false).was_lost);
  EXPECT_EQ(life.facts.state, HostState::Gone);
  EXPECT_EQ(life.facts.reason, "it did not work");
  life.now += seconds(60);
  EXPECT_THAT(life.step().actions, ElementsAre(HostAction::Connect));
}

HostLife connected(HostKind kind) {
  HostLife life(kind);
  ask_up(life.facts, life.now);
  life.step();
  if (kind == HostKind::Ssh) {
    life.done(HostAction::Preflight, true);
    life.done(HostAction::Install, true);
  }
  if (kind != HostKind::Joined) life.done(HostAction::Start, true);
  life.seen();
  EXPECT_TRUE(takes_work(life.facts));
  return life;
}

TEST(HostPolicy, ThreeMissedHeartbeatsLoseAHost) {
  for (const HostKind kind : {HostKind::Local, HostKind::Ssh, HostKind::Joined}) {
    HostLife life = connected(kind);
    life.now += seconds(15);
    EXPECT_FALSE(life.step().went_down);
    life.now += Millis(1);
    EXPECT_TRUE(life.step().went_down);
    EXPECT_EQ(life.facts.state, HostState::Degraded);
    EXPECT_FALSE(takes_work(life.facts));
    life.now = kStart + seconds(45) - Millis(1);
    EXPECT_FALSE(life.step().was_lost);
    life.now += Millis(1);
    EXPECT_TRUE(life.step().was_lost);
    EXPECT_TRUE(life.seen().came_up) << "it may come back at any time";
  }
}

TEST(HostPolicy, ALostTunnelIsOpenedAgainWithBackOff) {
  HostLife life = connected(HostKind::Ssh);
  note_lost(life.facts, "tunnel down", life.now);
  HostStep step = life.step();
  EXPECT_TRUE(step.went_down);
  EXPECT_THAT(step.actions, ElementsAre(HostAction::Connect)) << "the first time at once";
  Millis longest{0};
  for (int i = 0; i < 5; ++i) {
    step = life.done(HostAction::Connect, false);
    EXPECT_THAT(step.actions, IsEmpty());
    const auto pause = std::chrono::duration_cast<Millis>(step.wake - life.now);
    EXPECT_GE(pause, Millis(250));
    longest = std::max(longest, pause);
    life.now = step.wake;
    life.facts.last_seen = life.now;  // not lost in this test
    EXPECT_THAT(life.step().actions, ElementsAre(HostAction::Connect)) << i;
  }
  EXPECT_GT(longest, seconds(4));
  EXPECT_TRUE(life.seen().came_up);
}

TEST(HostPolicy, AskedUpAgainAHostGetsNewProgramsWhileItWorks) {
  HostLife life = connected(HostKind::Ssh);
  ask_up(life.facts, life.now);
  EXPECT_THAT(life.step().actions, ElementsAre(HostAction::Preflight));
  EXPECT_THAT(life.done(HostAction::Preflight, true).actions, ElementsAre(HostAction::Install));
  EXPECT_TRUE(takes_work(life.facts)) << "they may be long on their way";
  HostStep step = life.installed(/*is_new_version=*/true);
  EXPECT_THAT(step.actions, ElementsAre(HostAction::Start));
  EXPECT_TRUE(step.went_down);
  EXPECT_FALSE(step.was_lost) << "its workers stay";
  EXPECT_FALSE(life.seen().came_up) << "that was the pool before";
  EXPECT_THAT(life.done(HostAction::Start, true).actions, IsEmpty());
  EXPECT_FALSE(takes_work(life.facts));
  EXPECT_TRUE(life.seen().came_up);
  EXPECT_EQ(life.facts.note, "");
}

TEST(HostPolicy, AskedUpAgainWithNothingNewNothingHappens) {
  HostLife life = connected(HostKind::Ssh);
  ask_up(life.facts, life.now);
  life.step();
  life.done(HostAction::Preflight, true);
  const HostStep step = life.installed(/*is_new_version=*/false);
  EXPECT_THAT(step.actions, IsEmpty());
  EXPECT_FALSE(step.went_down);
  EXPECT_TRUE(takes_work(life.facts));
  for (const HostKind kind : {HostKind::Local, HostKind::Joined}) {
    HostLife other = connected(kind);
    ask_up(other.facts, other.now);
    EXPECT_THAT(other.step().actions, IsEmpty());
  }
}

TEST(HostPolicy, AnUpgradeThatFailsBeforeTheStartTouchesNothing) {
  for (const HostAction action : {HostAction::Preflight, HostAction::Install}) {
    HostLife life = connected(HostKind::Ssh);
    ask_up(life.facts, life.now);
    life.step();
    if (action == HostAction::Install) life.done(HostAction::Preflight, true);
    const HostStep step = life.done(action, false, /*is_final=*/true);
    EXPECT_THAT(step.actions, IsEmpty());
    EXPECT_FALSE(step.went_down);
    EXPECT_TRUE(takes_work(life.facts));
    EXPECT_EQ(life.facts.note, "its programs stay as they are: it did not work");
    ask_up(life.facts, life.now);
    EXPECT_THAT(life.step().actions, ElementsAre(HostAction::Preflight));
    EXPECT_EQ(life.facts.note, "");
  }
}

TEST(HostPolicy, AnUpgradeWhoseNewPoolFailsEndsWithTheOneBefore) {
  HostLife life = connected(HostKind::Ssh);
  ask_up(life.facts, life.now);
  life.step();
  life.done(HostAction::Preflight, true);
  life.installed(/*is_new_version=*/true);
  HostStep step = life.done(HostAction::Start, false);
  EXPECT_THAT(step.actions, ElementsAre(HostAction::RollBack));
  EXPECT_FALSE(step.was_lost);
  step = life.done(HostAction::RollBack, false);
  EXPECT_TRUE(step.was_lost) << "now they are";
  EXPECT_EQ(life.facts.state, HostState::Gone);
}

TEST(HostPolicy, AnUpgradeGoesOnOnceTheHostIsBack) {
  HostLife life = connected(HostKind::Ssh);
  ask_up(life.facts, life.now);
  life.step();
  note_lost(life.facts, "tunnel down", life.now);
  EXPECT_TRUE(life.step().went_down);
  EXPECT_THAT(life.done(HostAction::Preflight, true).actions, ElementsAre(HostAction::Connect));
  life.done(HostAction::Connect, true);
  EXPECT_THAT(life.seen().actions, ElementsAre(HostAction::Install));
  note_lost(life.facts, "tunnel down", life.now);
  life.step();
  EXPECT_THAT(life.installed(/*is_new_version=*/true).actions, ElementsAre(HostAction::Start))
      << "the new one is tried as one that can be rolled back";
  EXPECT_EQ(life.facts.state, HostState::Starting);
}

TEST(HostPolicy, TakenDownLosesItsWorkersAndStopsItsPool) {
  HostLife life = connected(HostKind::Ssh);
  ask_down(life.facts, life.now);
  const HostStep step = life.step();
  EXPECT_TRUE(step.was_lost);
  EXPECT_THAT(step.actions, ElementsAre(HostAction::Stop));
  EXPECT_FALSE(life.seen().came_up) << "nobody wants it up";
}

TEST(HostPolicy, NeverGivesTwoActionsAtOnceNorWorksWhileUnseen) {
  Dice random;
  SCOPED_TRACE(random.trace());
  for (int round = 0; round < 300; ++round) {
    HostFacts facts{.kind = static_cast<HostKind>(random() % 3)};
    TimePoint now = kStart;
    std::optional<HostAction> open;
    bool up = false;
    for (int i = 0; i < 200; ++i) {
      now += Millis(random() % 8000);
      switch (random() % 8) {
        case 0:
          ask_up(facts, now);
          break;
        case 1:
          if (random() % 8 == 0) ask_down(facts, now);
          break;
        case 2:
          note_lost(facts, "", now);
          break;
        case 3:
        case 4:
          note_seen(facts, now);
          break;
        default:
          if (open)
            note_step(facts, *std::exchange(open, std::nullopt),
                      {random() % 3 != 0, "why", random() % 9 == 0, random() % 2 == 0}, now);
      }
      const HostStep step = next_step(facts, now);
      ASSERT_LE(step.actions.size(), open ? 0U : 1U);
      if (!step.actions.empty()) open = step.actions[0];
      if (step.came_up) up = true;
      if (step.went_down || step.was_lost) up = false;
      ASSERT_TRUE(!takes_work(facts) || up);
      if (takes_work(facts)) {
        ASSERT_LE(now - facts.last_seen, kHeartbeat);
      }
      ASSERT_GT(step.wake, now);
    }
  }
}

TEST(KeyPolicy, Globs) {
  for (const auto& [glob, text, expected] : {std::tuple{"*", "", true},
                                             {"*", "llama-3", true},
                                             {"llama-*", "llama-3", true},
                                             {"llama-*", "qwen", false},
                                             {"*-instruct", "a-instruct", true},
                                             {"a*b*c", "axxbyyc", true},
                                             {"a*b*c", "axxbyy", false},
                                             {"?", "", false},
                                             {"?", "x", true},
                                             {"", "", true},
                                             {"", "x", false},
                                             {"a*a", "a", false},
                                             {"[a]", "a", false},
                                             {"**", "any", true}})
    EXPECT_EQ(matches_glob(glob, text), expected) << glob << " / " << text;
  EXPECT_FALSE(matches_glob("a*a*a*a*a*a*a*b", std::string(5000, 'a'))) << "in no time";
}

constexpr UnixMs kNoon = 20000 * 86'400'000LL + 43'200'000;

TEST(KeyPolicy, RefusesByScopeModelAndRevocation) {
  KeyFacts key{.name = "ci", .models = {"tiny*", "qwen"}};
  KeyUsage usage;
  EXPECT_FALSE(admit(key, usage, "tiny-1", 10, kNoon, kStart));
  const auto other = admit(key, usage, "llama", 10, kNoon, kStart);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->error.code, ErrorCode::Forbidden);
  EXPECT_THAT(other->error.message, HasSubstr("llama"));
  EXPECT_EQ(check_scope(key, Scope::Admin).error().code, ErrorCode::Forbidden);
  key.scope = Scope::Admin;
  EXPECT_TRUE(check_scope(key, Scope::Admin).ok());
  key.revoked = true;
  EXPECT_EQ(admit(key, usage, "qwen", 1, kNoon, kStart)->error.code, ErrorCode::Unauthorized);
  EXPECT_EQ(usage.tokens_reserved, 10) << "a refusal reserves nothing";
}

TEST(KeyPolicy, TokensOfTheDayAreReservedAndSettled) {
  const KeyFacts key{.name = "ci", .tokens_per_day = 1000};
  KeyUsage usage;
  EXPECT_FALSE(admit(key, usage, "m", 600, kNoon, kStart));
  const auto full = admit(key, usage, "m", 600, kNoon, kStart);
  ASSERT_TRUE(full);
  EXPECT_EQ(full->error.code, ErrorCode::QueueFull);
  EXPECT_EQ(full->retry_after_ms, 43'200'000);
  const auto never = admit(key, usage, "m", 1001, kNoon, kStart);
  EXPECT_EQ(never->error.code, ErrorCode::Forbidden) << "waiting does not help";
  EXPECT_THAT(never->error.message, HasSubstr("more than it ever has"));
  EXPECT_EQ(never->retry_after_ms, 0);
  settle(usage, 600, 100, kNoon);
  EXPECT_FALSE(admit(key, usage, "m", 600, kNoon, kStart));
  EXPECT_FALSE(admit(key, usage, "m", 400, kNoon + 86'400'000, kStart)) << "another day";
  EXPECT_EQ(usage.tokens_ever, 100);
}

TEST(KeyPolicy, TheBucketFillsWithTime) {
  const KeyFacts key{.name = "ci", .requests_per_minute = 6};
  KeyUsage usage;
  TimePoint now = kStart;
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(admit(key, usage, "m", 1, kNoon, now)) << i;
  const auto refused = admit(key, usage, "m", 1, kNoon, now);
  ASSERT_TRUE(refused);
  EXPECT_NEAR(refused->retry_after_ms, 10'000, 1);
  now = after_millis(now, refused->retry_after_ms);
  EXPECT_FALSE(admit(key, usage, "m", 1, kNoon, now));
  EXPECT_TRUE(admit(key, usage, "m", 1, kNoon, now));
  now += seconds(3600);
  int taken = 0;
  while (!admit(key, usage, "m", 1, kNoon, now)) ++taken;
  EXPECT_EQ(taken, 6) << "it holds no more than a minute's";
}

}  // namespace
}  // namespace llorch::fleet
