// OpenAI's endpoints over a whole orchestrator with scripted workers.
#include "orchestrator/openai_routes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/json.h"
#include "http/client.h"
#include "orchestrator/openai_fold.h"
#include "orchestrator/openai_request.h"
#include "orchestrator/relay_fixture.h"
#include "orchestrator/test_fleet.h"

namespace llorch::orchestrator {
namespace {

using std::chrono::milliseconds;
using test::scripted_answer;
using test::TestFleet;
using ::testing::ElementsAre, ::testing::EndsWith, ::testing::HasSubstr, ::testing::Not,
    ::testing::StartsWith;

std::string new_folder() {
  static std::atomic<int> newest{0};
  return testing::TempDir() + fmt::format("openai_routes_{}_{}", ::getpid(), ++newest);
}

class OpenAiRoutes : public ::testing::Test {
 protected:
  OpenAiRoutes() { fleet.wait_until_ready(); }

  Result<http::Response> post(std::string_view path, std::string body, http::Headers headers = {}) {
    http::ClientRequest request(http::Method::Post, fleet.url(path));
    request.body = std::move(body);
    request.headers = std::move(headers);
    return client.send(request);
  }
  http::Response chat(std::string_view more, http::Headers headers = {}) {
    Result<http::Response> answer =
        post("/v1/chat/completions",
             fmt::format(
                 R"({{"model":"story","seed":42,"messages":[{{"role":"user","content":"hi"}}]{}}})",
                 more),
             std::move(headers));
    EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.error().message);
    return answer.ok() ? answer.take() : http::Response();
  }

  TestFleet fleet{{.folder = new_folder(), .keep_alive = milliseconds(300)}};
  http::Client client;
};

json::Object parsed(const std::string& body) {
  const Result<json::Value> value = json::parse(body);
  EXPECT_TRUE(value.ok()) << body;
  return value.ok() && value->is_object() ? value->get_object() : json::Object();
}

TEST_F(OpenAiRoutes, StreamsAnAnswerAsTheWorkerDoes) {
  fleet.pool.set_usual({.tokens = 6});
  const http::Response answer = chat(R"(,"stream":true)");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.find("Content-Type"), "text/event-stream");
  EXPECT_EQ(answer.headers.find("X-Llorch-Worker").value_or("").substr(0, 7), "local/w");
  const std::string job(answer.headers.find("X-Llorch-Job").value_or(""));
  EXPECT_EQ(test::text_of(answer.body), scripted_answer(42, 0, 6));
  EXPECT_THAT(answer.body, HasSubstr("\"id\":\"chatcmpl-" + job + "\""));
  EXPECT_THAT(answer.body, HasSubstr("\"model\":\"story\""));
  EXPECT_THAT(answer.body, Not(HasSubstr("llorch\":")));
  EXPECT_THAT(answer.body, Not(HasSubstr("usage")));
  EXPECT_THAT(answer.body, Not(HasSubstr("\nid: ")));
  EXPECT_THAT(answer.body, EndsWith("data: [DONE]\n\n"));
}

TEST_F(OpenAiRoutes, TellsIdsAndUsageToThoseWhoAsk) {
  fleet.pool.set_usual({.tokens = 2});
  http::Headers headers;
  headers.add("X-Llorch-Ids", "1");
  const http::Response answer =
      chat(R"(,"stream":true,"stream_options":{"include_usage":true})", headers);
  EXPECT_THAT(answer.body,
              HasSubstr(fmt::format("\"llorch\":{{\"ids\":[{}]}}", test::scripted_id(42, 0, 0))));
  EXPECT_THAT(answer.body, HasSubstr("\"completion_tokens\":2"));
}

TEST_F(OpenAiRoutes, FoldsTheAnswerForThoseWhoDoNotStream) {
  fleet.pool.set_usual({.tokens = 5});
  const http::Response answer = chat(R"(,"n":3)");
  EXPECT_EQ(answer.status, 200);
  const json::Object whole = parsed(answer.body);
  EXPECT_EQ(whole.at("object"), json::Value("chat.completion"));
  ASSERT_EQ(whole.at("choices").as_array().size(), 3U);
  for (std::uint32_t choice = 0; choice < 3; ++choice) {
    const json::Object& entry = whole.at("choices").as_array()[choice].as_object();
    EXPECT_EQ(entry.at("message").at("content"),
              json::Value(scripted_answer(42, choice, 5 - choice)));
    EXPECT_EQ(entry.at("finish_reason"), json::Value("length"));
  }
  EXPECT_EQ(whole.at("usage").at("completion_tokens"), json::Value(12));
  EXPECT_TRUE(answer.headers.find("X-Llorch-Job").has_value());
}

TEST_F(OpenAiRoutes, AnAnswerMovesWithItsConnection) {
  for (const std::string_view form : {"", R"(,"stream":true)"}) {
    fleet.pool.script("w0", {.tokens = 6, .cut_after = 4});
    fleet.pool.script("w1", {.tokens = 6, .cut_after = 4});
    fleet.pool.set_usual({.tokens = 6});
    const http::Response answer = chat(form);
    const std::string text = form.empty() ? std::string(json::view(parsed(answer.body)
                                                                       .at("choices")
                                                                       .as_array()[0]
                                                                       .at("message")
                                                                       .at("content")
                                                                       .as_string()))
                                          : test::text_of(answer.body);
    EXPECT_EQ(text, scripted_answer(42, 0, 6));
  }
}

TEST_F(OpenAiRoutes, PassesAWorkersRefusalOnAsItIs) {
  const std::string refusal =
      R"({"error":{"message":"top_p is too much","type":"invalid_request_error","param":"top_p","code":null}})";
  for (const std::string_view form : {"", R"(,"stream":true)"}) {
    fleet.pool.set_usual({.refuse = 400, .refusal = refusal});
    const http::Response answer = chat(form);
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.body, refusal);
  }
}

TEST_F(OpenAiRoutes, AFailureInTheStreamIsAChunk) {
  fleet.pool.set_usual(
      {.tokens = 6, .fail_after = 4, .error = {ErrorCode::InvalidArgument, "no more"}});
  const http::Response answer = chat(R"(,"stream":true)");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr(R"(data: {"error":{"message":"no more")"));
  EXPECT_THAT(answer.body, Not(HasSubstr("[DONE]")));
}

TEST_F(OpenAiRoutes, UnknownModelsAreNotFoundWithTheNearestNames) {
  Result<http::Response> answer =
      post("/v1/chat/completions", R"({"model":"storr","messages":[]})");
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 404);
  EXPECT_THAT(answer->body, HasSubstr("\"code\":\"model_not_found\""));
  EXPECT_THAT(answer->body, HasSubstr("story"));
  http::ClientRequest list(http::Method::Get, fleet.url("/v1/models"));
  answer = client.send(list);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(parsed(answer->body).at("data").as_array()[0].at("id"), json::Value("story"));
  EXPECT_EQ(client.send({http::Method::Get, fleet.url("/v1/models/story")})->status, 200);
  EXPECT_EQ(client.send({http::Method::Get, fleet.url("/v1/models/stor")})->status, 404);
}

TEST_F(OpenAiRoutes, AModelIsAsOldAsTheOrchestrator) {
  const auto list = client.send({http::Method::Get, fleet.url("/v1/models")});
  ASSERT_TRUE(list.ok());
  const std::int64_t created = parsed(list->body).at("data").as_array()[0].at("created").as_int64();
  EXPECT_LE(created, wall_now_ms() / 1000);
  EXPECT_GT(created, wall_now_ms() / 1000 - 600);
}

TEST_F(OpenAiRoutes, TooManyAnswersAreRefusedAsAWorkerDoes) {
  const auto said = [this](std::string_view fields) {
    const auto answer = post("/v1/completions", fmt::format(R"({{"model":"story",{}}})", fields));
    EXPECT_EQ(answer->status, 400);
    return std::string(json::view(parsed(answer->body).at("error").at("message").as_string()));
  };
  EXPECT_EQ(said(R"("prompt":"x","n":65)"), "n must be an integer in 1..64, is 65");
  EXPECT_EQ(said(R"("prompt":["x","y"],"n":40)"),
            "n asks for 80 choices in all (prompts × n), more than 64");
}

TEST_F(OpenAiRoutes, ParametersAndFieldsThatAreWrongAreNamed) {
  const auto field_of = [](const Result<http::Response>& answer) -> std::string {
    EXPECT_EQ(answer->status, 400) << answer->body;
    const json::Object body = parsed(answer->body);
    return std::string(
        json::view(body.at("error").at("errors").as_array()[0].at("field").as_string()));
  };
  for (const std::string_view path : {"/metrics?odd=1", "/v2/models?odd=1", "/v2/tasks?odd=1"})
    EXPECT_EQ(field_of(client.send({http::Method::Get, fleet.url(path)})), "odd") << path;
  EXPECT_EQ(field_of(post("/v2/backup", R"({"file":"here.db"})")), "file");
  for (const std::string_view path : {"/health?odd=1", "/v1/models?api-version=1"})
    EXPECT_EQ(client.send({http::Method::Get, fleet.url(path)})->status, 200) << path;
}

TEST_F(OpenAiRoutes, AKeyHearsNothingOfOtherKeysAndTheirModels) {
  const auto get = [this](std::string_view path, const fleet::KeyFacts& facts) {
    const Result<KeyRing::NewKey> key = fleet.keys->add(facts, 1);
    EXPECT_TRUE(key.ok());
    http::ClientRequest request(http::Method::Get, fleet.url(path));
    request.headers.add("Authorization", "Bearer " + key->key);
    return client.send(request).take();
  };
  EXPECT_EQ(get("/metrics", {.name = "one", .scope = fleet::Scope::Infer}).status, 403);
  EXPECT_EQ(get("/metrics", {.name = "two", .scope = fleet::Scope::Admin}).status, 200);
  EXPECT_THAT(get("/v2/models", {.name = "three", .models = {"sto*"}}).body, HasSubstr("story"));
  EXPECT_THAT(get("/v2/models", {.name = "four", .models = {"other-*"}}).body,
              Not(HasSubstr("story")));
}

TEST_F(OpenAiRoutes, AKeysUsageStandsInMetrics) {
  fleet.pool.set_usual({.tokens = 6});
  const Result<KeyRing::NewKey> key = fleet.keys->add({.name = "lap\"top"}, 1);
  ASSERT_TRUE(key.ok());
  http::Headers headers;
  headers.add("Authorization", "Bearer " + key->key);
  ASSERT_EQ(chat("", headers).status, 200);
  const std::string page = client.send({http::Method::Get, fleet.url("/metrics")})->body;
  const std::string row = fmt::format(R"(llorch_key_tokens_total{{key="{}",name="lap\"top"}} )",
                                      fleet::text(key->stored.id));
  const std::size_t at = page.find(row);
  ASSERT_NE(at, std::string::npos) << page;
  EXPECT_GE(std::stoi(page.substr(at + row.size())), 6) << page.substr(at, 100);
}

TEST_F(OpenAiRoutes, RefusesWhatItMustUnderstandItself) {
  for (const std::string_view body :
       {R"({"messages":[]})", R"({"model":5})", R"({"model":"story","stream":"yes"})",
        R"({"model":"story","seed":1.5})", R"({"model":"story","llorch":{"resume_ids":[1]}})",
        R"({"model":"story","stream_options":{"include_usage":true}})", R"([])", R"({)"}) {
    const Result<http::Response> answer = post("/v1/chat/completions", std::string(body));
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->status, 400) << body;
    EXPECT_THAT(answer->body, HasSubstr("invalid_request_error")) << body;
  }
}

TEST_F(OpenAiRoutes, EmbeddingsAreRepeatedWholeWhenAWorkerIsLost) {
  fleet.pool.script("w0", {.refuse = 500});
  fleet.pool.script("w1", {.refuse = 500});
  const Result<http::Response> answer =
      post("/v1/embeddings", R"({"model":"story","input":"text"})");
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 200) << answer->body;
  EXPECT_THAT(answer->body, HasSubstr("\"embedding\""));
}

TEST_F(OpenAiRoutes, EmbeddingsAreBookedByWhatTheWorkerCounted) {
  const Result<http::Response> answer =
      post("/v1/embeddings", R"({"model":"story","input":"text"})");
  ASSERT_TRUE(answer.ok());
  ASSERT_EQ(answer->status, 200) << answer->body;
  std::atomic<std::int64_t> booked = -1;
  ASSERT_TRUE(fleet.core().ask([&booked](const fleet::Fleet& facts, fleet::TimePoint) {
    booked = facts.keys.front().usage.tokens_ever;
  }));
  while (booked < 0) std::this_thread::yield();
  EXPECT_EQ(booked, 202);
}

TEST_F(OpenAiRoutes, AnOrderlyEndIsSaidOnEveryConnection) {
  fleet.pool.set_usual({.tokens = 100'000, .pace = milliseconds(2)});
  http::Response streamed;
  http::Response whole;
  {
    const std::jthread one([&] { streamed = chat(R"(,"stream":true)"); });
    const std::jthread two([&] { whole = chat(""); });
    while (fleet.pool.running() < 2) std::this_thread::yield();
    fleet.core().post(fleet::ShuttingDown{});
  }
  const bool had_begun = streamed.status == 200;
  EXPECT_TRUE(had_begun || streamed.status == 503) << streamed.status;
  EXPECT_THAT(streamed.body, HasSubstr("the orchestrator was stopped"));
  if (had_begun) {
    EXPECT_THAT(streamed.body, HasSubstr("data: {\"error\":{"));
    EXPECT_THAT(streamed.body, EndsWith("}\n\n"));
  }
  EXPECT_EQ(whole.status, 503);
  EXPECT_THAT(parsed(whole.body).at("error").at("message").as_string().c_str(),
              HasSubstr("the orchestrator was stopped"));
  EXPECT_EQ(chat("").status, 503) << "nothing more is accepted";
}

TEST_F(OpenAiRoutes, AQueuedStreamIsKeptAlive) {
  fleet.pool.set_usual({.refuse = 503});
  std::string text;
  http::ClientRequest request(http::Method::Post, fleet.url("/v1/chat/completions"));
  request.body = R"({"model":"story","messages":[],"stream":true})";
  const Result<http::Response> answer = client.stream(request, [&text](std::string_view bytes) {
    text += bytes;
    return text.size() < 40;
  });
  EXPECT_THAT(text, StartsWith(":"));
}

TEST_F(OpenAiRoutes, AClientThatGoesCancelsItsJob) {
  fleet.pool.set_usual({.tokens = 100'000, .pace = milliseconds(2)});
  http::ClientRequest request(http::Method::Post, fleet.url("/v1/chat/completions"));
  request.body = R"({"model":"story","messages":[],"stream":true})";
  const Result<http::Response> answer =
      client.stream(request, [](std::string_view) { return false; });
  EXPECT_FALSE(answer.ok());
  while (fleet.pool.running() > 0 || fleet.answers->size().answers > 0) std::this_thread::yield();
}

TEST(OpenAiRequest, CountsTheAnswers) {
  const auto choices = [](fleet::JobKind kind, std::string_view body) {
    OpenAiRequest request;
    const Result<json::Value> value = json::parse(body);
    EXPECT_FALSE(read_openai_request(kind, value->get_object(), request));
    return request.choices;
  };
  using fleet::JobKind;
  EXPECT_EQ(choices(JobKind::Chat, R"({"model":"m","n":3})"), 3U);
  EXPECT_EQ(choices(JobKind::Completion, R"({"model":"m","prompt":["a","b"],"n":2})"), 4U);
  EXPECT_EQ(choices(JobKind::Completion, R"({"model":"m","prompt":[1,2,3]})"), 1U);
  EXPECT_EQ(choices(JobKind::Completion, R"({"model":"m","prompt":[[1],[2]]})"), 2U);
  OpenAiRequest request;
  EXPECT_FALSE(read_openai_request(JobKind::Completion, {{"model", "m"}}, request));
  EXPECT_EQ(request.max_tokens, 16U) << "OpenAI's default";
  EXPECT_FALSE(read_openai_request(JobKind::Chat, {{"model", "m"}}, request));
  EXPECT_EQ(request.max_tokens, 0U) << "as the context has room for";
  const auto refusal =
      read_openai_request(JobKind::Chat, json::Object{{"model", "m"}, {"n", 1000}}, request);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->param, "n");
}

TEST(AnswerFold, PutsCallsThoughtsAndProbabilitiesTogether) {
  AnswerFold fold(fleet::JobKind::Chat, 1, true);
  const auto chunk = [](std::string_view delta, std::string_view logprobs,
                        std::string_view reason) {
    return fmt::format(
        "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
        "\"choices\":[{{\"index\":0,\"delta\":{},\"logprobs\":{},\"finish_reason\":{}}}],"
        "\"usage\":null}}\n\n",
        delta, logprobs, reason);
  };
  const std::string events =
      chunk(R"({"role":"assistant","content":""})", "null", "null") +
      chunk(R"({"reasoning_content":"hm"})", R"({"content":[1],"refusal":null})", "null") +
      chunk(
          R"({"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"f","arguments":""}}]})",
          R"({"content":[2],"refusal":null})", "null") +
      chunk(R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]})", "null", "null") +
      chunk(R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]})", "null", "null") +
      chunk("{}", "null", "\"tool_calls\"") +
      "data: {\"id\":\"x\",\"choices\":[],\"usage\":{\"total_tokens\":3}}\n\ndata: [DONE]\n\n";
  ASSERT_TRUE(fold.add(events).ok());
  EXPECT_EQ(
      json::serialize(fold.whole()),
      R"({"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":null,"refusal":null,"reasoning_content":"hm","tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"logprobs":{"content":[1,2],"refusal":null},"finish_reason":"tool_calls"}],"usage":{"total_tokens":3}})");
  EXPECT_FALSE(fold.add("data: {\"error\":1}\n\n").ok());
}

}  // namespace
}  // namespace llorch::orchestrator
