// OpenAI's chats over a real server, with a scripted backend behind them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker_http/fake_backend.h"

namespace llorch::worker_http {
namespace {

using test::say_hello;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

TEST(Chat, RendersTheMessagesAndAnswers) {
  TestWorker worker;
  worker.backend.script = say_hello;
  const std::string response =
      worker.post("/v1/chat/completions",
                  R"({"model":"fake","messages":[{"role":"developer","content":"be brief"},
          {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"me"},
          {"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c1","type":"function",
             "function":{"name":"f","arguments":"{\"x\":1}"}}]},
          {"role":"tool","tool_call_id":"c1","content":"2"}],
          "tools":[{"type":"function","function":{"name":"f"}}],"user":"u","metadata":{},"store":true})");
  EXPECT_EQ(status_of(response), 200) << response;
  const json::Value body = json_of(response);
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_TRUE(json::view(body.at("id").get_string()).starts_with("chatcmpl-"));
  EXPECT_EQ(
      json::serialize(body.at("choices")),
      R"([{"index":0,"message":{"role":"assistant","content":"Hello","refusal":null},"logprobs":null,"finish_reason":"stop"}])");
  const TextRequest& request = worker.backend.job(0)->request;
  EXPECT_EQ(request.prompt.kind, TextRequest::Prompt::Kind::Rendered);
  EXPECT_EQ(
      request.prompt.text,
      R"({"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"ab","name":"me"},{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"x":1}}}]},{"role":"tool","content":"2","tool_call_id":"c1"}],"add_generation_prompt":true,"tools":[{"type":"function","function":{"name":"f"}}]})");
  EXPECT_FALSE(request.sampling.max_tokens.has_value());
}

TEST(Chat, SettingsReachTheBackend) {
  TestWorker worker;
  worker.backend.script = say_hello;
  worker.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"temperature":0,"top_p":0.5,"stop":"END",
                  "frequency_penalty":0.25,"presence_penalty":-0.5,"logit_bias":{"7":-100,"9":2.5},
                  "max_completion_tokens":9,"top_k":40,"min_p":0.25,"repetition_penalty":1.5,"logprobs":true,"top_logprobs":3,"tool_choice":"none",
                  "tools":[{"type":"function","function":{"name":"f"}}],
                  "response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,
                    "schema":{"type":"object"}}}})");
  const TextRequest& request = worker.backend.job(0)->request;
  EXPECT_EQ(request.sampling.temperature, 0.0F);
  EXPECT_EQ(request.sampling.top_p, 0.5F);
  EXPECT_THAT(request.sampling.stop, ElementsAre("END"));
  EXPECT_EQ(request.frequency_penalty, 0.25F);
  EXPECT_EQ(request.presence_penalty, -0.5F);
  EXPECT_THAT(request.logit_bias, ElementsAre(std::pair<std::int32_t, float>(7, -100.0F),
                                              std::pair<std::int32_t, float>(9, 2.5F)));
  EXPECT_EQ(request.sampling.max_tokens, 9);
  EXPECT_EQ(request.top_logprobs, 3);
  EXPECT_EQ(request.format.kind, OutputFormat::Kind::JsonSchema);
  EXPECT_EQ(json::serialize(request.format.schema), R"({"type":"object"})");
  EXPECT_THAT(request.prompt.text, Not(HasSubstr("tools")));
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.min_p, 0.25F);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5F);

  worker.post("/v1/chat/completions",
              R"({"messages":[{"role":"user","content":"x"}],"stop":["a","b"],
                  "response_format":{"type":"json_object"}})");
  EXPECT_THAT(worker.backend.job(1)->request.sampling.stop, ElementsAre("a", "b"));
  EXPECT_EQ(worker.backend.job(1)->request.format.kind, OutputFormat::Kind::JsonObject);
}

TEST(Chat, Stream) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    job.say("Hi", {token_report("Hi", -0.5F, {{"Ho", -1.0F}})});
    job.end(contract::StopReason::MaxTokens, 1);
  };
  const auto data = data_of(worker.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"stream":true,"logprobs":true,"top_logprobs":1})"));
  ASSERT_EQ(data.size(), 4U);
  const json::Value first = parse(data[0]);
  EXPECT_EQ(first.at("object"), "chat.completion.chunk");
  EXPECT_FALSE(first.get_object().contains("usage"));
  EXPECT_EQ(json::serialize(first.at("choices").at(0).at("delta")),
            R"({"role":"assistant","content":"","refusal":null})");
  const json::Value second = parse(data[1]);
  EXPECT_EQ(json::serialize(second.at("choices").at(0).at("delta")), R"({"content":"Hi"})");
  EXPECT_EQ(
      json::serialize(second.at("choices").at(0).at("logprobs")),
      R"({"content":[{"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[{"token":"Ho","logprob":-1.0,"bytes":[72,111]}]}],"refusal":null})");
  const json::Value third = parse(data[2]);
  EXPECT_EQ(json::serialize(third.at("choices").at(0).at("delta")), "{}");
  EXPECT_EQ(third.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_EQ(first.at("id"), third.at("id"));
  EXPECT_EQ(data[3], "[DONE]");
}

TEST(Chat, TwoChoicesShareAStream) {
  TestWorker worker;
  RawSocket socket(worker.server->port());
  ASSERT_TRUE(socket.send(http::test::post(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true,"n":2})",
      fmt::format("{}Connection: close\r\n", kJson))));
  const auto one = worker.backend.job(0);
  const auto two = worker.backend.job(1);
  one->start();
  two->start();
  two->say("B");
  one->say("A");
  two->end();
  one->say("A2");
  one->end();
  std::string texts[2];
  std::size_t finished = 0;
  const auto data = data_of(socket.read_all());
  for (const std::string& line : data) {
    if (line == "[DONE]") continue;
    const json::Value choice = parse(line).at("choices").at(0);
    if (choice.at("finish_reason").is_string()) ++finished;
    const json::Value* content = choice.at("delta").get_object().if_contains("content");
    if (content != nullptr)
      texts[choice.at("index").to_number<std::size_t>()] += json::view(content->get_string());
  }
  EXPECT_EQ(texts[0], "AA2");
  EXPECT_EQ(texts[1], "B");
  EXPECT_EQ(finished, 2U);
  EXPECT_EQ(data.back(), "[DONE]");
}

TEST(Chat, FailuresInTheMiddle) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    job.say("x");
    job.fail({ErrorCode::DeadlineExceeded, "too late"});
  };
  const std::string whole =
      worker.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(status_of(whole), 504);
  EXPECT_EQ(json_of(whole).at("error").at("type"), "server_error");
  const auto data = data_of(worker.post(
      "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stream":true})"));
  EXPECT_EQ(
      data.back(),
      R"({"error":{"message":"too late","type":"server_error","param":null,"code":"INFERENCE_TIMEOUT"}})");
}

TEST(Chat, ALeavingClientAbandonsEveryChoice) {
  TestWorker worker;
  for (const bool stream : {true, false}) {
    const std::size_t before = worker.backend.num_jobs();
    RawSocket socket(worker.server->port());
    ASSERT_TRUE(socket.send(http::test::post(
        "/v1/chat/completions",
        fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],"n":3,"stream":{}}})",
                    stream),
        kJson)));
    worker.backend.job(before + 2)->start();
    socket.reset();
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(worker.backend.wait_until_abandoned(before + i)) << i;
  }
}

TEST(Chat, ChoicesAreAcceptedAllOrNone) {
  TestWorker worker;
  worker.backend.admit = [&](const TextRequest& request) -> Status {
    if (request.job_id.ends_with("-2")) return Error{ErrorCode::QueueFull, "64 wait"};
    return ok_status();
  };
  const std::string response =
      worker.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"n":3})");
  EXPECT_EQ(status_of(response), 429);
  EXPECT_EQ(header_of(response, "retry-after"), "1");
  EXPECT_EQ(json_of(response).at("error").at("type"), "rate_limit_error");
  EXPECT_EQ(worker.backend.num_jobs(), 0U);
}

TEST(Chat, MoreChoicesThanEverRunAreBlamedOnN) {
  TestWorker worker;
  worker.backend.admit = [](const TextRequest&) -> Status {
    return Error{ErrorCode::InvalidArgument, "3 at once are more than 2"};
  };
  const std::string response =
      worker.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"n":3})");
  EXPECT_EQ(status_of(response), 400);
  EXPECT_EQ(json_of(response).at("error").at("param"), "n");
}

TEST(Chat, WithoutATemplateSaysWhatToDo) {
  TestWorker worker;
  ModelInfo info = test::fake_model();
  info.has_chat_template = false;
  worker.backend.info = std::make_shared<const ModelInfo>(info);
  const std::string response =
      worker.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})");
  EXPECT_EQ(status_of(response), 400);
  EXPECT_THAT(response, HasSubstr("/v1/completions"));
  EXPECT_EQ(json_of(response).at("error").at("param"), "messages");
}

TEST(Chat, TheTemplatesRefusalIsPassedOn) {
  TestWorker worker;
  worker.backend.chat = [](const json::Object&) -> Result<std::string> {
    return Error{ErrorCode::InvalidArgument, "roles must alternate"};
  };
  const std::string body = R"({"messages":[{"role":"user","content":"x"}]})";
  const std::string response = worker.post("/v1/chat/completions", body);
  EXPECT_EQ(status_of(response), 400);
  EXPECT_THAT(response, HasSubstr("roles must alternate"));
  worker.backend.chat = [](const json::Object&) -> Result<std::string> {
    return Error{ErrorCode::Unavailable, "shutting down"};
  };
  EXPECT_EQ(status_of(worker.post("/v1/chat/completions", body)), 503);
}

// Each bad body with the field that the error must name.
TEST(Chat, RefusesAndNames) {
  TestWorker worker;
  const std::string messages = R"("messages":[{"role":"user","content":"x"}])";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({})", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":[7]})", "messages[0]"},
      {R"({"messages":[{"role":"wizard","content":"x"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":null}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]})",
       "messages[0].content[0]"},
      {"{" + messages + R"(,"n":0})", "n"},
      {"{" + messages + R"(,"n":65})", "n"},
      {"{" + messages + R"(,"temperature":2.5})", "temperature"},
      {"{" + messages + R"(,"top_logprobs":2})", "top_logprobs"},
      {"{" + messages + R"(,"logprobs":true,"top_logprobs":21})", "top_logprobs"},
      {"{" + messages + R"(,"max_tokens":1,"max_completion_tokens":2})", "max_tokens"},
      {"{" + messages + R"(,"max_tokens":0})", "max_tokens"},
      {"{" + messages + R"(,"stream_options":{"include_usage":true}})", "stream_options"},
      {"{" + messages + R"(,"stream":true,"stream_options":{"other":true}})",
       "stream_options.other"},
      {"{" + messages + R"(,"stop":["a","b","c","d","e"]})", "stop"},
      {"{" + messages + R"(,"logit_bias":{"x":1}})", R"(logit_bias."x")"},
      {"{" + messages + R"(,"logit_bias":{"05":1}})", R"(logit_bias."05")"},
      {"{" + messages + R"(,"logit_bias":{"-0":1}})", R"(logit_bias."-0")"},
      {"{" + messages + R"(,"logit_bias":{"5":101}})", "logit_bias.5"},
      {"{" + messages + R"(,"logit_bias":{"100":1}})", "logit_bias"},
      {"{" + messages + R"(,"response_format":{"type":"xml"}})", "response_format.type"},
      {"{" + messages + R"(,"response_format":{"type":"json_schema"}})",
       "response_format.json_schema"},
      {"{" + messages +
           R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":1,"schema":{}}}})",
       "response_format.json_schema.strict"},
      {"{" + messages + R"(,"tool_choice":"required"})", "tool_choice"},
      {"{" + messages + R"(,"tools":[{"type":"custom"}]})", "tools[0]"},
      {"{" + messages + R"(,"tools":[{"type":"function","function":{"name":"a b"}}]})",
       "tools[0].function.name"},
      {"{" + messages +
           R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}}})",
       "tool_choice"},
      {"{" + messages +
           R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"custom","function":{"name":"f"}}})",
       "tool_choice"},
      {"{" + messages +
           R"(,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f","x":1}}})",
       "tool_choice.function.x"},
      {"{" + messages +
           R"(,"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]})",
       "tools[1].function.name"},
      {"{" + messages +
           R"(,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}]})",
       "tools[0].function.parameters.type"},
      {"{" + messages + R"(,"seed":18446744073709551616})", "seed"},
      {"{" + messages + R"(,"seed":-9223372036854775809})", "seed"},
      {"{" + messages + R"(,"seed":0.5})", "seed"},
      {"{" + messages + R"(,"seed":"1"})", "seed"},
      {"{" + messages +
           R"(,"tools":[{"type":"function","function":{"name":"f"}}],"response_format":{"type":"json_object"}})",
       "response_format"},
      {"{" + messages + R"(,"documents":["text"]})", "documents"},
      {"{" + messages + R"(,"chat_template_kwargs":{"messages":[]}})", "chat_template_kwargs"},
      {"{" + messages + R"(,"top_k":-1})", "top_k"},
      {"{" + messages + R"(,"min_p":1.5})", "min_p"},
      {"{" + messages + R"(,"repetition_penalty":0})", "repetition_penalty"},
      {"{" + messages + R"(,"frequency_penalty":3})", "frequency_penalty"},
      {"{" + messages + R"(,"temprature":1})", "temprature"},
  };
  for (const auto& [body, field] : cases) {
    const std::string response = worker.post("/v1/chat/completions", body);
    EXPECT_EQ(status_of(response), 400) << body;
    const json::Value answer = json_of(response);
    EXPECT_EQ(answer.at("error").at("param"), field.c_str()) << response;
    EXPECT_EQ(answer.at("error").at("type"), "invalid_request_error");
    EXPECT_THAT(std::string(json::view(answer.at("error").at("message").get_string())),
                HasSubstr(field));
  }
  EXPECT_EQ(worker.backend.num_jobs(), 0U);
  // Every tool that is wrong, and nothing about tools that were sent and refused.
  const std::string wrong_tools = worker.post(
      "/v1/chat/completions",
      "{" + messages +
          R"(,"tools":[{"type":"function","function":{"name":"a b"}},{"type":"custom"}],"tool_choice":"required"})");
  EXPECT_THAT(wrong_tools, HasSubstr("tools[0].function.name must"));
  EXPECT_THAT(wrong_tools, HasSubstr("tools[1] must"));
  EXPECT_THAT(wrong_tools, Not(HasSubstr("there are no tools")));
  for (const char* seed : {"18446744073709551616", "1.5", "-0.5", "1e300"}) {
    EXPECT_THAT(worker.post("/v1/chat/completions", "{" + messages + ",\"seed\":" + seed + "}"),
                HasSubstr("seed must be an integer from -2^63 to 2^64-1"))
        << seed;
  }
  const std::string other =
      worker.post("/v1/chat/completions", "{" + messages + R"(,"model":"gpt"})");
  EXPECT_EQ(status_of(other), 404);
  EXPECT_EQ(json_of(other).at("error").at("code"), "model_not_found");
}

}  // namespace
}  // namespace llorch::worker_http
