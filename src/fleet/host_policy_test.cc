// The life of a host: every rule by hand, then by chance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/dice.h"
#include "fleet/host_policy.h"

namespace llorch::fleet {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

const TimePoint kStart{seconds(1000)};

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
  HostStep cut(HostAction action, Link link = Link::Broke) {
    note_step(facts, action, {.reason = "the connection broke", .link = link}, now);
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

TEST(HostPolicy, AConnectionThatBreaksInTheMiddleOfAStepIsMadeAgain) {
  HostLife life(HostKind::Ssh);
  ask_up(life.facts, life.now);
  life.step();
  const auto breaks_once = [&life](HostAction action, HostState state) {
    HostStep step = life.cut(action);
    EXPECT_THAT(step.actions, IsEmpty()) << name(action);
    EXPECT_FALSE(step.was_lost) << name(action);
    EXPECT_EQ(life.facts.state, state);
    EXPECT_EQ(life.facts.reason, "the connection broke");
    EXPECT_LE(step.wake - life.now, Millis(500)) << name(action);
    life.now = step.wake;
    EXPECT_THAT(life.step().actions, ElementsAre(action));
    life.cut(action, Link::Absent);
    EXPECT_EQ(life.facts.state, state) << "it has not come back yet";
    life.now = life.step().wake;
    EXPECT_THAT(life.step().actions, ElementsAre(action));
  };
  breaks_once(HostAction::Preflight, HostState::Preflight);
  life.done(HostAction::Preflight, true);
  breaks_once(HostAction::Install, HostState::Installing);
  life.installed(/*is_new_version=*/true);
  breaks_once(HostAction::Start, HostState::Starting);
  life.done(HostAction::Start, true);
  EXPECT_TRUE(life.seen().came_up);
  EXPECT_EQ(life.facts.reason, "");
}

TEST(HostPolicy, AHostThatWasNeverReachedSaysSoAtOnce) {
  HostLife life(HostKind::Ssh);
  ask_up(life.facts, life.now);
  life.step();
  life.cut(HostAction::Preflight, Link::Absent);
  EXPECT_EQ(life.facts.state, HostState::Gone);
}

TEST(HostPolicy, AConnectionThatStaysAwayLosesTheHost) {
  for (const HostAction action : {HostAction::Preflight, HostAction::Install, HostAction::Start}) {
    HostLife life(HostKind::Ssh);
    ask_up(life.facts, life.now);
    life.step();
    if (action != HostAction::Preflight) life.done(HostAction::Preflight, true);
    if (action == HostAction::Start) life.installed(/*is_new_version=*/true);
    bool was_lost = false;
    HostStep step = life.cut(action);
    while (!was_lost && life.now < kStart + seconds(120)) {
      life.now = step.wake;
      ASSERT_THAT(life.step().actions, ElementsAre(action));
      step = life.cut(action, Link::Absent);
      was_lost = step.was_lost;
      ASSERT_THAT(step.actions, IsEmpty()) << "no version is to blame";
    }
    EXPECT_TRUE(was_lost) << name(action);
    EXPECT_EQ(life.facts.state, HostState::Gone);
    EXPECT_GE(life.now - kStart, kBreakPatience);
    EXPECT_LE(life.now - kStart, kBreakPatience + kLongestBackOff);
    life.now = step.wake;
    EXPECT_THAT(life.step().actions, ElementsAre(HostAction::Preflight)) << "from the beginning";
    EXPECT_TRUE(may_return(life.facts));
  }
}

TEST(HostPolicy, AHostThatIsGoneIsTriedSoonAndThenLessAndLessOften) {
  HostLife life(HostKind::Ssh);
  ask_up(life.facts, life.now);
  life.step();
  Millis longest{0};
  for (int i = 0; i < 10; ++i) {
    const HostStep step = life.cut(HostAction::Preflight, Link::Absent);
    const auto pause = std::chrono::duration_cast<Millis>(step.wake - life.now);
    if (i == 0) {
      EXPECT_LE(pause, seconds(4));
    }
    EXPECT_GE(pause, seconds(4));
    EXPECT_LE(pause, seconds(60));
    longest = std::max(longest, pause);
    life.now = step.wake;
    ASSERT_THAT(life.step().actions, ElementsAre(HostAction::Preflight)) << i;
  }
  EXPECT_GE(longest, seconds(30));
}

TEST(HostPolicy, WhatNobodyCanMendButAPersonDoesNotReturn) {
  HostLife life(HostKind::Ssh);
  EXPECT_FALSE(may_return(life.facts)) << "nobody wants it";
  ask_up(life.facts, life.now);
  EXPECT_TRUE(may_return(life.facts));
  life.step();
  life.done(HostAction::Preflight, false, /*is_final=*/true);
  EXPECT_FALSE(may_return(life.facts));
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

TEST(HostPolicy, AnUpgradeWhoseConnectionBreaksGoesOn) {
  HostLife life = connected(HostKind::Ssh);
  ask_up(life.facts, life.now);
  life.step();
  HostStep step = life.cut(HostAction::Preflight);
  EXPECT_TRUE(step.went_down) << "nothing can be sent there";
  EXPECT_FALSE(step.was_lost);
  EXPECT_EQ(life.facts.note, "");
  EXPECT_THAT(step.actions, ElementsAre(HostAction::Connect));
  life.done(HostAction::Connect, true);
  EXPECT_THAT(life.seen().actions, ElementsAre(HostAction::Preflight));
  life.done(HostAction::Preflight, true);
  EXPECT_THAT(life.installed(/*is_new_version=*/true).actions, ElementsAre(HostAction::Start));
  step = life.cut(HostAction::Start);
  EXPECT_THAT(step.actions, IsEmpty()) << "it is not gone back for that";
  EXPECT_FALSE(step.was_lost) << "its workers stay";
  life.now = step.wake;
  EXPECT_THAT(life.step().actions, ElementsAre(HostAction::Start));
  life.done(HostAction::Start, true);
  EXPECT_TRUE(life.seen().came_up);
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
                      {random() % 3 != 0, "why", random() % 9 == 0, random() % 2 == 0,
                       static_cast<Link>(random() % 3)},
                      now);
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

}  // namespace
}  // namespace llorch::fleet
