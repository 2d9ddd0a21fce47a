// POST /execute over a real server, with a scripted backend behind it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "http/sse.h"
#include "worker_http/fake_backend.h"

namespace llorch::worker_http {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

std::vector<std::string> names_of(const std::vector<http::SseEvent>& events) {
  std::vector<std::string> names;
  for (const http::SseEvent& event : events) names.push_back(event.event);
  return names;
}

void tell_a_story(const FakeJob& job) {
  job.start();
  job.say("Once");
  job.say(" upon");
  job.say("");  // a token without text makes no event
  job.say(" a ☃");
  job.end(contract::StopReason::MaxTokens, 4);
}

TEST(Execute, StreamsStartedTokensAndEnd) {
  TestWorker worker;
  worker.backend.script = tell_a_story;
  const std::string response =
      worker.post("/execute", R"({"job_id":"j1","prompt":"p","seed":5,"max_tokens":4})");
  EXPECT_EQ(status_of(response), 200);
  EXPECT_EQ(header_of(response, "content-type"), "text/event-stream");
  const auto events = events_of(response);
  ASSERT_THAT(names_of(events), ElementsAre("started", "token", "token", "token", "end"));
  EXPECT_EQ(
      events[0].data,
      R"({"job_id":"j1","model":"fake","started_at":"2026-01-02T03:04:05Z","seed":5,"prompt_tokens":3,"cached_tokens":1,"queue_ms":0.5})");
  EXPECT_EQ(events[1].data, R"({"t":"Once","i":0})");
  EXPECT_EQ(events[2].data, R"({"t":" upon","i":1})");
  EXPECT_EQ(events[3].data, R"({"t":" a ☃","i":2})");
  EXPECT_EQ(
      events[4].data,
      R"({"tokens_out":4,"decode_time_ms":12,"stop_reason":"max_tokens","stop_sequence_matched":null,"prompt_tokens":3,"prefill_ms":1.5,"ttft_ms":2.5,"seed":5})");
}

TEST(Execute, TellsIdsWithTextAndThoseOfTheTailWithTheEnd) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    job.say_ids("Once", {7});
    job.say_ids("", {8});  // half a character
    job.say_ids(" ☃", {9, 10});
    job.say_ids("##", {11}, true);
    job.end(contract::StopReason::Eos, 6, {12});
  };
  const auto events = events_of(worker.post("/execute", R"({"job_id":"j1","prompt":"p"})"));
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[1].data, R"({"t":"Once","i":0,"ids":[7]})");
  EXPECT_EQ(events[2].data, R"({"t":" ☃","i":1,"ids":[8,9,10]})");
  EXPECT_EQ(events[3].data, R"({"t":"##","i":2})");
  EXPECT_THAT(events[4].data, ::testing::EndsWith(R"("seed":7,"ids":[11,12]})"));
}

TEST(Execute, GoesOnAfterWhatWasToldElsewhere) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    job.tell({{"Once", {7}}, {"", {8}}, {" upon", {9}}});
    job.say_ids(" a", {10});
    job.end(contract::StopReason::Eos, 4);
  };
  const auto events = events_of(worker.post(
      "/execute", R"({"job_id":"j","prompt_ids":[1,2],"seed":3,"resume":{"ids":[7,8,9]}})"));
  ASSERT_THAT(names_of(events), ElementsAre("started", "token", "end"));
  EXPECT_EQ(events[1].data, R"({"t":" a","i":2,"ids":[10]})");
  const TextRequest& request = worker.backend.job(0)->request;
  EXPECT_EQ(request.prompt.kind, TextRequest::Prompt::Kind::Ids);
  EXPECT_THAT(request.prompt.ids, ElementsAre(1, 2));
  EXPECT_THAT(request.told, ElementsAre(7, 8, 9));
}

TEST(Execute, IdsThatItCannotHaveSaidAre400) {
  TestWorker worker;
  worker.backend.told = [](const TextRequest&) {
    return PrepareError{{ErrorCode::InvalidArgument, "id 99 is not in the vocabulary"},
                        PrepareError::Blame::Told};
  };
  const std::string response =
      worker.post("/execute", R"({"job_id":"j","prompt":"p","seed":3,"resume":{"ids":[99]}})");
  EXPECT_EQ(status_of(response), 400);
  const json::Value error = json_of(response).at("error");
  EXPECT_EQ(error.at("errors").at(0).at("field"), "resume.ids");
  EXPECT_EQ(worker.backend.num_jobs(), 0U);
  // Nothing told is nothing to check.
  worker.backend.script = tell_a_story;
  EXPECT_EQ(status_of(worker.post("/execute",
                                  R"({"job_id":"j","prompt":"p","seed":3,"resume":{"ids":[]}})")),
            200);
}

TEST(Execute, HandsTheRequestOn) {
  TestWorker worker;
  worker.backend.script = tell_a_story;
  const auto before = std::chrono::steady_clock::now();
  worker.post("/execute",
              R"({"job_id":"a.b_c-9","prompt":"späte <s>","temperature":0.5,"top_p":0.9,"min_p":0.1,
                  "top_k":7,"repetition_penalty":1.5,"stop":["x","yy"],"max_tokens":9})");
  const TextRequest& request = worker.backend.job(0)->request;
  EXPECT_EQ(request.job_id, "a.b_c-9");
  EXPECT_EQ(request.prompt.kind, TextRequest::Prompt::Kind::Plain);
  EXPECT_EQ(request.prompt.text, "späte <s>");
  contract::SamplingConfig expected;
  expected.temperature = 0.5F;
  expected.top_p = 0.9F;
  expected.min_p = 0.1F;
  expected.top_k = 7;
  expected.repetition_penalty = 1.5F;
  expected.stop = {"x", "yy"};
  expected.max_tokens = 9;
  EXPECT_EQ(request.sampling, expected);
  EXPECT_FALSE(request.shorten_to_fit);
  EXPECT_GT(request.deadline, before + std::chrono::seconds(290));
  EXPECT_LT(request.deadline, before + std::chrono::seconds(310));
}

TEST(Execute, TheClientsDeadlineCountsWhenItIsSooner) {
  TestWorker worker;
  worker.backend.script = tell_a_story;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto soon = std::chrono::duration_cast<milliseconds>(now).count() + 5000;
  worker.post("/execute", R"({"job_id":"j","prompt":"p"})",
              fmt::format("{}X-Deadline: {}\r\n", kJson, soon));
  EXPECT_LT(worker.backend.job(0)->request.deadline,
            std::chrono::steady_clock::now() + std::chrono::seconds(6));
  const std::string past = worker.post("/execute", R"({"job_id":"j","prompt":"p"})",
                                       fmt::format("{}X-Deadline: 1000\r\n", kJson));
  EXPECT_EQ(status_of(past), 504);
  EXPECT_THAT(past, HasSubstr("INFERENCE_TIMEOUT"));
  EXPECT_EQ(worker.backend.num_jobs(), 1U);
}

TEST(Execute, TheFirstTokenLeavesBeforeTheSecondExists) {
  TestWorker worker;
  RawSocket socket(worker.server->port());
  ASSERT_TRUE(socket.send(http::test::post("/execute", R"({"job_id":"j","prompt":"p"})", kJson)));
  const auto job = worker.backend.job(0);
  job->start();
  EXPECT_THAT(socket.read_until("\n\n"), HasSubstr("event: started"));
  ASSERT_TRUE(job->say("first"));
  EXPECT_THAT(socket.read_until("\n\n"), HasSubstr(R"("t":"first")"));
  ASSERT_TRUE(job->say("second"));
  EXPECT_THAT(socket.read_until("\n\n"), HasSubstr(R"("t":"second")"));
  job->end();
  EXPECT_THAT(socket.read_until("\n\n"), HasSubstr("event: end"));
}

// A job whose client has heard a comment and no event.
struct SilentJob {
  SilentJob() {
    EXPECT_TRUE(socket.send(http::test::post("/execute", R"({"job_id":"j","prompt":"p"})", kJson)));
    job = worker.backend.job(0);
    EXPECT_THAT(socket.read_until(": keep-alive\n\n"), Not(HasSubstr("event:")));
  }
  static RouteSettings impatient() {
    RouteSettings settings;
    settings.keep_alive = milliseconds(20);
    return settings;
  }

  TestWorker worker{impatient()};
  RawSocket socket{worker.server->port()};
  std::shared_ptr<FakeJob> job;
};

TEST(Execute, SilenceIsFilledWithComments) {
  SilentJob silent;
  silent.job->start();
  EXPECT_THAT(silent.socket.read_until("event: started"), HasSubstr("event: started"));
  EXPECT_THAT(silent.socket.read_until(": keep-alive\n\n"), HasSubstr(": keep-alive"));
  silent.job->end();
}

TEST(Execute, ErrorsEndTheStream) {
  const std::vector<std::pair<Error, std::string>> cases = {
      {{ErrorCode::Cancelled, "cancelled"},
       R"({"code":"CANCELLED","message":"cancelled","retriable":false})"},
      {{ErrorCode::DeadlineExceeded, "too late"},
       R"({"code":"INFERENCE_TIMEOUT","message":"too late","retriable":true})"},
      {{ErrorCode::Internal, "broken"},
       R"({"code":"INTERNAL","message":"broken","retriable":true})"}};
  for (const auto& [error, data] : cases) {
    TestWorker worker;
    worker.backend.script = [&error = error](const FakeJob& job) {
      job.start();
      job.say("x");
      job.fail(error);
    };
    const auto events = events_of(worker.post("/execute", R"({"job_id":"j","prompt":"p"})"));
    ASSERT_THAT(names_of(events), ElementsAre("started", "token", "error"));
    EXPECT_EQ(events[2].data, data);
  }
}

// Cancelled, too late or cut by a shutdown while it waited for its turn.
TEST(Execute, AnErrorBeforeTheFirstEventIsAStatus) {
  const std::vector<std::pair<Error, int>> cases = {
      {{ErrorCode::Cancelled, "cancelled"}, 499},
      {{ErrorCode::DeadlineExceeded, "too late"}, 504},
      {{ErrorCode::Unavailable, "this worker is stopping"}, 503}};
  for (const auto& [error, status] : cases) {
    TestWorker worker;
    worker.backend.script = [&error = error](const FakeJob& job) { job.fail(error); };
    const std::string response = worker.post("/execute", R"({"job_id":"j","prompt":"p"})");
    EXPECT_EQ(status_of(response), status);
    EXPECT_EQ(json::view(json_of(response).at("error").at("message").as_string()), error.message);
  }
}

TEST(Execute, AnErrorAfterACommentComesBehindStarted) {
  SilentJob silent;
  silent.job->fail({ErrorCode::DeadlineExceeded, "too late"});
  const std::string rest = silent.socket.read_until("too late");
  EXPECT_THAT(rest, HasSubstr("event: started\ndata: {\"job_id\":\"j\",\"model\":\""));
  EXPECT_LT(rest.find("event: started"), rest.find("event: error"));
}

TEST(Execute, AllFailuresAtOnce) {
  TestWorker worker;
  const std::string response = worker.post(
      "/execute",
      R"({"prompt":"","temperature":3,"top_p":-1,"stop":["secret","",""],"surprise":1})",
      fmt::format("{}X-Correlation-Id: my-id-1\r\n", kJson));
  EXPECT_EQ(status_of(response), 400);
  EXPECT_EQ(header_of(response, "x-correlation-id"), "my-id-1");
  const json::Value body = json_of(response);
  const json::Object& error = body.at("error").get_object();
  EXPECT_EQ(error.at("code"), "INVALID_REQUEST");
  EXPECT_EQ(error.at("retriable"), false);
  EXPECT_EQ(error.at("correlation_id"), "my-id-1");
  std::vector<std::string> fields;
  for (const json::Value& entry : error.at("errors").get_array())
    fields.emplace_back(json::view(entry.at("field").get_string()));
  EXPECT_THAT(fields, ::testing::IsSupersetOf({"job_id", "prompt", "temperature", "top_p",
                                               "stop[1]", "stop[2]", "surprise"}));
  EXPECT_THAT(response, Not(HasSubstr("secret")));
  EXPECT_EQ(worker.backend.num_jobs(), 0U);
}

TEST(Execute, RefusalsOfTheBackendHaveTheirStatus) {
  struct Case {
    ErrorCode code;
    int status;
    std::string wire;
    std::string retry_after;
  };
  for (const Case& expected : {Case{ErrorCode::InvalidArgument, 400, "INVALID_REQUEST", ""},
                               Case{ErrorCode::QueueFull, 429, "QUEUE_FULL", "1"},
                               Case{ErrorCode::Conflict, 409, "CONFLICT", ""},
                               Case{ErrorCode::Unavailable, 503, "UNAVAILABLE", "1"},
                               Case{ErrorCode::OutOfMemory, 503, "INSUFFICIENT_MEMORY", ""}}) {
    TestWorker worker;
    worker.backend.admit = [&](const TextRequest&) -> Status {
      return Error{expected.code, "100 + 20 > 64"};
    };
    const std::string response = worker.post("/execute", R"({"job_id":"j","prompt":"p"})");
    EXPECT_EQ(status_of(response), expected.status);
    EXPECT_EQ(header_of(response, "retry-after"), expected.retry_after);
    EXPECT_EQ(json_of(response).at("error").at("code"), expected.wire.c_str());
    EXPECT_THAT(response, HasSubstr("100 + 20 > 64"));
  }
}

TEST(Execute, AClientThatLeavesAbandonsItsJob) {
  TestWorker worker;
  auto socket = std::make_unique<RawSocket>(worker.server->port());
  ASSERT_TRUE(socket->send(http::test::post("/execute", R"({"job_id":"j","prompt":"p"})", kJson)));
  const auto job = worker.backend.job(0);
  socket->reset();  // before anything was said, as during a long prefill
  EXPECT_TRUE(worker.backend.wait_until_abandoned(0));
  job->start();
  EXPECT_FALSE(job->say("to nobody"));
  job->fail({ErrorCode::Cancelled, "abandoned"});
}

TEST(Execute, AFinishedJobIsForgottenWithoutHarm) {
  TestWorker worker;
  worker.backend.script = tell_a_story;
  for (int i = 0; i < 20; ++i) {
    const auto events = events_of(worker.post("/execute", R"({"job_id":"j","prompt":"p"})"));
    ASSERT_EQ(events.size(), 5U);
  }
}

// The reader takes nothing; the kernel's buffers fill, then the feed, then its job is cancelled.
// Meanwhile another client is served as always.
TEST(Execute, ASlowReaderLosesItsJobAndNobodyElses) {
  RouteSettings settings;
  settings.max_waiting_pieces = 8;
  TestWorker worker(settings);
  RawSocket slow(worker.server->port(), 2048);
  ASSERT_TRUE(slow.send(http::test::post("/execute", R"({"job_id":"slow","prompt":"p"})", kJson)));
  const auto job = worker.backend.job(0);
  job->start();
  int said = 0;
  const std::string piece(64 * 1024, 'x');
  while (said < 10'000 && job->say(piece)) ++said;
  EXPECT_LT(said, 1000) << "nothing bounds what waits for a slow reader";
  job->fail({ErrorCode::Cancelled, "the listener said so"});

  worker.backend.script = tell_a_story;
  const auto events = events_of(worker.post("/execute", R"({"job_id":"quick","prompt":"p"})"));
  EXPECT_THAT(names_of(events), ElementsAre("started", "token", "token", "token", "end"));

  const std::string rest = slow.read_until("event: error");
  EXPECT_THAT(rest, HasSubstr("event: error"));
  const std::string data = slow.read_until("\n\n");
  EXPECT_THAT(data, HasSubstr("CANCELLED"));
  EXPECT_THAT(data, HasSubstr("too slow"));
}

TEST(Execute, OnlyJsonIsTaken) {
  TestWorker worker;
  worker.backend.script = tell_a_story;
  const std::string form =
      worker.post("/execute", R"({"job_id":"j","prompt":"p"})", "Content-Type: text/plain\r\n");
  EXPECT_EQ(status_of(form), 415);
  EXPECT_THAT(form, HasSubstr("UNSUPPORTED_MEDIA_TYPE"));
  EXPECT_EQ(status_of(worker.post("/execute", R"({"job_id":"j","prompt":"p"})",
                                  "Content-Type: Application/JSON ; charset=utf-8\r\n")),
            200);
  EXPECT_EQ(status_of(worker.ask("POST /execute HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"
                                 "Content-Length: 2\r\n\r\n{}")),
            415);
  // And nothing at all on the way out: pages can send that.
  EXPECT_EQ(
      status_of(worker.ask("POST /shutdown HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")),
      415);
  const std::string below_v1 =
      worker.ask("POST /v1/completions HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(status_of(below_v1), 415);
  EXPECT_THAT(below_v1, HasSubstr(R"("type":"invalid_request_error")")) << "in OpenAI's shape";
  const std::string page = worker.ask(
      "GET /v1/models HTTP/1.1\r\nHost: test\r\nOrigin: https://evil.example\r\n"
      "Connection: close\r\n\r\n");
  EXPECT_EQ(status_of(page), 403);
  EXPECT_THAT(page, HasSubstr(R"("param":null)")) << "in OpenAI's shape";
}

TEST(Execute, SixtyFourStreamsAtOnceLoseNothing) {
  TestWorker worker;
  std::vector<std::unique_ptr<RawSocket>> sockets;
  for (int i = 0; i < 64; ++i) {
    sockets.push_back(std::make_unique<RawSocket>(worker.server->port()));
    ASSERT_TRUE(sockets.back()->send(
        http::test::post("/execute", fmt::format(R"({{"job_id":"j{}","prompt":"p"}})", i),
                         "Content-Type: application/json\r\nConnection: close\r\n")));
  }
  std::vector<std::shared_ptr<FakeJob>> jobs;
  for (std::size_t i = 0; i < 64; ++i) jobs.push_back(worker.backend.job(i));
  for (const auto& job : jobs) job->start();
  for (int t = 0; t < 20; ++t) {
    for (const auto& job : jobs)
      ASSERT_TRUE(job->say(fmt::format("{}/{}", job->request.job_id, t)));
  }
  for (const auto& job : jobs) job->end();
  for (int i = 0; i < 64; ++i) {
    const auto events = events_of(sockets[static_cast<std::size_t>(i)]->read_all());
    ASSERT_EQ(events.size(), 22U);
    for (int t = 0; t < 20; ++t) {
      EXPECT_EQ(events[static_cast<std::size_t>(t) + 1].data,
                fmt::format(R"({{"t":"j{}/{}","i":{}}})", i, t, t));
    }
  }
}

}  // namespace
}  // namespace llorch::worker_http
