// Failover and keys: every rule by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/failover_policy.h"
#include "fleet/key_policy.h"

namespace llorch::fleet {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

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
