// Attempts on scripted workers: what followers are told, how ends are judged, how answers move.
#include "orchestrator/relay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orchestrator/relay_fixture.h"

namespace llorch::orchestrator {
namespace {

using fleet::AttemptEnd;
using fleet::AttemptEnded;
using fleet::AttemptStarted;
using fleet::Holder;
using fleet::JobKind;
using fleet::JobState;
using std::chrono::milliseconds;
using test::events_of;
using test::RelayHouse;
using test::Script;
using test::scripted_answer;
using test::text_of;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

std::vector<std::string> names_of(const std::string& stream) {
  std::vector<std::string> names;
  for (const http::SseEvent& event : events_of(stream)) names.push_back(event.event);
  return names;
}

TEST(Relay, AnAnswerGoesToItsFollowersWithPositions) {
  RelayHouse house;
  house.pool.set_usual({.tokens = 3});
  const fleet::JobId job = house.submit(JobKind::Execute);
  house.facts(job).deadline_ms = 1'700'000'000'001;
  auto followed = house.follow(job);
  const fleet::AttemptId attempt = house.open(job, "w0");
  const auto started = house.posted.take<AttemptStarted>();
  EXPECT_EQ(started.attempt, attempt);
  EXPECT_EQ(started.prompt_tokens, 5U);
  EXPECT_EQ(started.cached_tokens, 2U);
  const auto ended = house.posted.take<AttemptEnded>();
  EXPECT_EQ(ended.end, AttemptEnd::Completed);
  EXPECT_EQ(ended.told, 3U);
  EXPECT_EQ(ended.new_tokens, 3U);
  EXPECT_EQ(ended.stop_reason, "max_tokens");
  house.tell_end(job, JobState::Completed);
  const std::string text = followed.get();
  EXPECT_THAT(names_of(text), ElementsAre("started", "token", "token", "token", "end"));
  EXPECT_EQ(text_of(text), scripted_answer(42, 0, 3));
  std::vector<std::string> ids;
  for (const http::SseEvent& event : events_of(text)) ids.push_back(event.id);
  EXPECT_THAT(ids, ElementsAre("0", "1", "2", "3", "3"));
  const auto seen = house.pool.seen();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].body.at("job_id"), json::Value(fleet::text(attempt)));
  EXPECT_EQ(seen[0].headers.find("X-Llorch-Boot"), "3");
  EXPECT_FALSE(seen[0].headers.find("X-Deadline")) << "the host's clock may be another";
}

TEST(Relay, TheEndIsToldByTheOwnersWordOnly) {
  RelayHouse house;
  const fleet::JobId job = house.submit(JobKind::Execute);
  auto followed = house.follow(job, "", 9);  // started and eight tokens
  house.open(job, "w0");
  house.posted.take<AttemptEnded>();
  EXPECT_THAT(followed.get(), Not(HasSubstr("event: end")));
  house.tell_end(job, JobState::Failed, ErrorCode::Unavailable, "the disk is full");
  EXPECT_THAT(house.follow(job).get(), HasSubstr("event: error\ndata: {\"code\":\"UNAVAILABLE\","
                                                 "\"message\":\"the disk is full\""));
}

// The heart of it: cut anywhere, go on elsewhere, and the client's text is the same.
void expect_moves(JobKind kind, std::uint32_t choices, std::uint32_t events) {
  RelayHouse house;
  for (std::uint32_t cut = 0; cut <= events; ++cut) {
    SCOPED_TRACE(cut);
    const fleet::JobId job = house.submit(kind, Holder::Followed, choices);
    auto followed = house.follow(job);
    house.pool.script("w0", {.tokens = 6, .cut_after = cut});
    house.pool.script("w1", {.tokens = 6});
    house.open(job, "w0");
    const auto lost = house.posted.take<AttemptEnded>();
    if (lost.end != AttemptEnd::Completed) {
      EXPECT_EQ(lost.end, AttemptEnd::Lost);
      EXPECT_EQ(lost.cause, std::nullopt);
      house.open(job, "w1", "w0");
      const auto ended = house.posted.take<AttemptEnded>();
      EXPECT_EQ(ended.end, AttemptEnd::Completed) << ended.message;
    }
    house.tell_end(job, JobState::Completed);
    const std::string text = followed.get();
    for (std::uint32_t choice = 0; choice < choices; ++choice)
      EXPECT_EQ(text_of(text, choice), scripted_answer(42, choice, 6 - choice));
    const std::string again = house.follow(job).get();
    for (std::uint32_t choice = 0; choice < choices; ++choice)
      EXPECT_EQ(text_of(again, choice), scripted_answer(42, choice, 6 - choice));
  }
}

TEST(Relay, ExecuteGoesOnFromEveryEvent) {
  expect_moves(JobKind::Execute, 1, 7);
}
TEST(Relay, ChatGoesOnFromEveryEvent) {
  expect_moves(JobKind::Chat, 1, 11);
}
TEST(Relay, ThreeChoicesGoOnFromEveryEvent) {
  expect_moves(JobKind::Chat, 3, 27);
}
TEST(Relay, CompletionGoesOnFromEveryEvent) {
  expect_moves(JobKind::Completion, 1, 8);
}

TEST(Relay, SaysThatItMovedWhereItDid) {
  RelayHouse house;
  house.pool.script("w0", {.tokens = 4, .cut_after = 3});
  house.pool.script("w1", {.tokens = 4});
  const fleet::JobId job = house.submit(JobKind::Execute);
  house.open(job, "w0");
  EXPECT_EQ(house.posted.take<AttemptEnded>().told, 2U);
  house.open(job, "w1", "w0", /*is_exact=*/false);
  EXPECT_EQ(house.posted.take<AttemptEnded>().new_tokens, 2U);
  house.tell_end(job, JobState::Completed);
  const std::string text = house.follow(job).get();
  EXPECT_THAT(names_of(text),
              ElementsAre("started", "token", "token", "migrated", "token", "token", "end"));
  EXPECT_THAT(text, HasSubstr(R"(data: {"from":"h/w0","to":"h/w1","at_token":2,"gap_ms":)"));
  EXPECT_THAT(text, HasSubstr(R"("exact":false})"));
}

TEST(Relay, ARestartedFollowerMissesNothingAndSeesNothingTwice) {
  RelayHouse house;
  house.pool.set_usual({.tokens = 5});
  const fleet::JobId job = house.submit(JobKind::Execute);
  house.open(job, "w0");
  house.posted.take<AttemptEnded>();
  house.tell_end(job, JobState::Completed);
  const std::string whole = house.follow(job).get();
  for (std::uint32_t told = 0; told <= 5; ++told) {
    const std::string rest = house.follow(job, std::to_string(told)).get();
    EXPECT_EQ(text_of(rest), scripted_answer(42, 0, 5).substr(scripted_answer(42, 0, told).size()));
    EXPECT_TRUE(whole.ends_with(rest)) << rest;
    EXPECT_THAT(names_of(rest), Not(::testing::Contains("started")));
  }
  EXPECT_THAT(house.follow(job, "12.x").get(), HasSubstr("INVALID_REQUEST"));
  EXPECT_THAT(house.follow(job, "1.2").get(), HasSubstr("is a position in 2 answers"));
  EXPECT_THAT(house.follow({1, 2}).get(), HasSubstr("NOT_FOUND"));
}

TEST(Relay, AFollowerAheadOfTheLogWaitsForIt) {
  RelayHouse house;
  house.pool.script("w0", {.tokens = 6, .cut_after = 3});
  house.pool.script("w1", {.tokens = 6});
  const fleet::JobId job = house.submit(JobKind::Execute);
  house.open(job, "w0");
  house.posted.take<AttemptEnded>();  // two are told
  auto followed = house.follow(job, "4");
  house.open(job, "w1", "w0");
  house.posted.take<AttemptEnded>();
  house.tell_end(job, JobState::Completed);
  EXPECT_EQ(text_of(followed.get()),
            scripted_answer(42, 0, 6).substr(scripted_answer(42, 0, 4).size()));
}

TEST(Relay, AnAnswerComesBackFromTheStore) {
  BookLimits limits;
  limits.log.log_bytes = 0;  // nothing durable stays in memory
  limits.log.group_ids = 4;
  limits.keep_alive = std::chrono::hours(1);  // nothing waits for it
  RelayHouse house({}, limits);
  house.pool.set_usual({.tokens = 50});
  const fleet::JobId job = house.submit(JobKind::Chat, Holder::Followed, 2);
  house.open(job, "w0");
  house.posted.take<AttemptEnded>();
  while (house.book.size().bytes > 2000) std::this_thread::yield();
  const std::string live = house.follow(job, "", 60).get();
  house.tell_end(job, JobState::Completed);
  const std::string text = house.follow(job).get();
  for (std::uint32_t choice = 0; choice < 2; ++choice)
    EXPECT_EQ(text_of(text, choice), scripted_answer(42, choice, 50 - choice));
  EXPECT_TRUE(text.starts_with(live.substr(0, live.rfind("\n\n") + 2)));
  const std::string rest = house.follow(job, "20.19").get();
  EXPECT_EQ(text_of(rest), scripted_answer(42, 0, 50).substr(scripted_answer(42, 0, 20).size()));
}

TEST(Relay, AnAnswerThatIsNotKeptIsNoEmptyAnswer) {
  RelayHouse house;
  const fleet::JobId forgotten = house.submit(JobKind::Execute);
  house.tell_end(forgotten, JobState::Completed);
  const fleet::JobId attached = house.submit(JobKind::Chat, Holder::Connection);
  house.tell_end(attached, JobState::Completed);
  const fleet::JobId failed = house.submit(JobKind::Execute);
  house.tell_end(failed, JobState::Failed, ErrorCode::Internal, "it broke");
  for (const fleet::JobId& job : {forgotten, attached, failed}) {
    house.wait_ended(job);
    house.book.drop(job);
  }
  EXPECT_THAT(house.follow(forgotten).get(), HasSubstr("no longer kept"));
  EXPECT_THAT(house.follow(attached).get(), HasSubstr("went to the connection"));
  EXPECT_THAT(house.follow(failed).get(), HasSubstr("it broke"));
}

TEST(Relay, ARecoveredAnswerGoesOnBehindWhatIsStored) {
  RelayHouse house;
  house.pool.script("w0", {.tokens = 6, .cut_after = 4});
  house.pool.script("w1", {.tokens = 6});
  const fleet::JobId job = house.submit(JobKind::Execute);
  house.open(job, "w0");
  EXPECT_EQ(house.posted.take<AttemptEnded>().told, 3U);
  const fleet::Position stored = house.wait_stored(job, 3);
  house.book.drop(job);  // the orchestrator died
  house.book.open(job, house.facts(job), stored);
  auto followed = house.follow(job, "1");
  house.open(job, "w1");
  EXPECT_EQ(house.posted.take<AttemptEnded>().end, AttemptEnd::Completed);
  house.tell_end(job, JobState::Completed);
  EXPECT_EQ(text_of(followed.get()),
            scripted_answer(42, 0, 6).substr(scripted_answer(42, 0, 1).size()));
  const auto seen = house.pool.seen();
  EXPECT_EQ(seen.back().body.at("resume").at("ids").as_array().size(), 3U);
}

TEST(Relay, AnEndThatNobodyHeardOfNeedsNoWorker) {
  BookLimits limits;
  limits.keep_alive = std::chrono::hours(1);  // nothing waits for it
  RelayHouse house({}, limits);
  house.pool.set_usual({.tokens = 3});
  const fleet::JobId job = house.submit(JobKind::Execute);
  house.open(job, "w0");
  house.posted.take<AttemptEnded>();
  const fleet::Position stored = house.wait_stored(job, 3);
  house.book.drop(job);
  house.book.open(job, house.facts(job), stored);
  house.open(job, "w1");
  const auto ended = house.posted.take<AttemptEnded>();
  EXPECT_EQ(ended.end, AttemptEnd::Completed);
  EXPECT_EQ(ended.stop_reason, "max_tokens");
  EXPECT_EQ(house.pool.seen().size(), 1U);
  auto followed = house.follow(job, "", 4);
  EXPECT_THAT(followed.get(), Not(HasSubstr("event: end")));
  house.tell_end(job, JobState::Completed);
  EXPECT_THAT(house.follow(job, "3").get(), HasSubstr("event: end\ndata: {\"tokens_out\":3"));
}

TEST(Relay, WritesTheEndThatAWorkerLeftOut) {
  RelayHouse house;
  house.pool.set_usual({.tokens = 3, .tells_done = false});
  const fleet::JobId job = house.submit(JobKind::Chat);
  auto followed = house.follow(job);
  house.open(job, "w0");
  EXPECT_EQ(house.posted.take<AttemptEnded>().end, AttemptEnd::Completed);
  house.tell_end(job, JobState::Completed);
  const std::string text = followed.get();
  EXPECT_TRUE(text.ends_with("data: [DONE]\n\n")) << text;
  EXPECT_THAT(text, Not(HasSubstr("llorch")));
  EXPECT_THAT(text, HasSubstr("\"id\":\"chatcmpl-" + fleet::text(job) + "\""));
  EXPECT_THAT(text, HasSubstr("\"created\":1700000000,\"model\":\"story\""));
}

struct EndCase {
  Script script;
  AttemptEnd end;
  std::optional<fleet::LossCause> cause;
};

TEST(Relay, JudgesEnds) {
  RelayHouse house({.silence = milliseconds(200)});
  const Error oom{ErrorCode::DeviceOutOfMemory, "full"};
  const Error bad{ErrorCode::InvalidArgument, "no"};
  const std::string envelope =
      R"({"error":{"code":"NOT_FOUND","message":"no such worker","retriable":false,"correlation_id":"c"}})";
  const EndCase cases[] = {
      {{.fail_after = 2}, AttemptEnd::Lost, fleet::LossCause::WorkerError},
      {{.fail_after = 2, .error = oom}, AttemptEnd::Lost, fleet::LossCause::OutOfMemory},
      {{.fail_after = 2, .error = bad}, AttemptEnd::Failed, std::nullopt},
      {{.stall_after = 2}, AttemptEnd::Lost, fleet::LossCause::Link},
      {{.refuse = 503}, AttemptEnd::Refused, std::nullopt},
      {{.refuse = 429}, AttemptEnd::Refused, std::nullopt},
      {{.refuse = 404, .refusal = envelope}, AttemptEnd::Lost, std::nullopt},
      {{.refuse = 400,
        .refusal = R"({"error":{"code":"INVALID_REQUEST","message":"m",)"
                   R"("retriable":false,"correlation_id":"c"}})"},
       AttemptEnd::Failed,
       std::nullopt},
  };
  for (const EndCase& each : cases) {
    const fleet::JobId job = house.submit(JobKind::Execute);
    house.pool.script("w0", each.script);
    house.open(job, "w0");
    const auto ended = house.posted.take<AttemptEnded>();
    EXPECT_EQ(ended.end, each.end) << ended.message;
    EXPECT_EQ(ended.cause, each.cause) << ended.message;
  }
  house.pool.stop();
  const fleet::JobId job = house.submit(JobKind::Execute);
  house.open(job, "w0");
  const auto ended = house.posted.take<AttemptEnded>();
  EXPECT_EQ(ended.end, AttemptEnd::Lost);
  EXPECT_EQ(ended.cause, fleet::LossCause::Link);
}

TEST(Relay, CutsByTheWorkersOwnWord) {
  RelayHouse house({.cut = milliseconds(60'000)});
  for (const JobKind kind : {JobKind::Execute, JobKind::Chat}) {
    house.pool.script("w0", {.tokens = 1000, .pace = milliseconds(5)});
    const fleet::JobId job = house.submit(kind);
    const fleet::AttemptId attempt = house.open(job, "w0");
    house.posted.take<AttemptStarted>();
    if (kind == JobKind::Chat) house.follow(job, "", 3).get();  // its name is known then
    house.relays.cut(attempt);
    const auto ended = house.posted.take<AttemptEnded>();
    EXPECT_EQ(ended.end, AttemptEnd::Cut);
    EXPECT_EQ(ended.attempt, attempt);
  }
  EXPECT_EQ(house.pool.cancels(), 2U);
  EXPECT_EQ(house.relays.counters().live, 0U);
}

TEST(Relay, ClosesTheStreamOfAWorkerThatDoesNotHear) {
  RelayHouse house({.cut = milliseconds(20)});
  for (const bool has_begun : {true, false}) {
    house.pool.script("w0", {.stall_after = has_begun ? 1U : 0U, .hears_cancel = false});
    const fleet::JobId job = house.submit(JobKind::Execute);
    const fleet::AttemptId attempt = house.open(job, "w0");
    if (has_begun) house.posted.take<AttemptStarted>();
    house.relays.cut(attempt);
    EXPECT_EQ(house.posted.take<AttemptEnded>().end, AttemptEnd::Cut);
  }
  while (house.pool.running() > 0) std::this_thread::yield();  // it saw the connection go
  EXPECT_EQ(house.posted.count<AttemptEnded>(), 0U);
}

TEST(Relay, ReportsProgressAndItsFollowers) {
  RelayHouse house({.tick = milliseconds(5), .progress = milliseconds(5)});
  house.pool.set_usual({.tokens = 1000, .stall_after = 4});
  const fleet::JobId job = house.submit(JobKind::Execute);
  const fleet::AttemptId attempt = house.open(job, "w0");
  fleet::Progress progress;
  while (progress.items.empty() || progress.items[0].told < 3)
    progress = house.posted.take<fleet::Progress>();
  EXPECT_EQ(progress.items[0].attempt, attempt);
  house.follow(job, "", 2).get();
  EXPECT_EQ(house.posted.take<fleet::FollowersChanged>().followers, 1U);
  EXPECT_EQ(house.posted.take<fleet::FollowersChanged>().followers, 0U);
  house.relays.cut(attempt);
  house.posted.take<AttemptEnded>();
}

TEST(Relay, AFollowerCannotReadAlongWithAConnection) {
  RelayHouse house;
  const fleet::JobId job = house.submit(JobKind::Chat, Holder::Connection);
  EXPECT_THAT(house.follow(job).get(), HasSubstr("CONFLICT"));
}

// A client that does not read holds its worker up, and nothing is kept without a bound.
TEST(Relay, AWorkerWaitsForWhatNobodyReads) {
  BookLimits limits;
  limits.log.pause_bytes = 2000;
  RelayHouse house({}, limits);
  house.pool.set_usual({.tokens = 20'000});
  const fleet::JobId job = house.submit(JobKind::Chat, Holder::Connection);
  house.open(job, "w0");
  house.posted.take<AttemptStarted>();
  const std::shared_ptr<AnswerLog> log = house.book.find(job);
  while (log->memory_bytes() < 2000) std::this_thread::yield();
  EXPECT_EQ(house.posted.count<AttemptEnded>(), 0U);
  EXPECT_LT(log->memory_bytes(), 200'000U);  // what one read of its stream may bring
  AnswerCursor cursor;
  std::string text;
  while (house.posted.count<AttemptEnded>() == 0) text += log->news(cursor).bytes;
  text += log->news(cursor).bytes;
  EXPECT_EQ(text_of(text), scripted_answer(42, 0, 20'000));
  EXPECT_EQ(log->memory_bytes(), 0U);
}

TEST(Relay, EmbeddingsAreAskedForWhole) {
  RelayHouse house;
  const fleet::JobId job = house.submit(JobKind::Embedding, Holder::Connection);
  house.open(job, "w0");
  EXPECT_EQ(house.posted.take<AttemptEnded>().end, AttemptEnd::Completed);
  const auto whole = house.book.find(job)->whole();
  ASSERT_TRUE(whole);
  EXPECT_THAT(whole->body, HasSubstr("embedding"));
  EXPECT_FALSE(house.pool.seen()[0].body.contains("stream"));
  EXPECT_FALSE(house.pool.seen()[0].body.contains("model"));
}

}  // namespace
}  // namespace llorch::orchestrator
