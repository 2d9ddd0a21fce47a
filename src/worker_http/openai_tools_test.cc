// Tool calls and thinking over HTTP: whole and streamed, chosen, forced and described.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "openai/answer_style.h"
#include "worker_http/fake_backend.h"

namespace llorch::worker_http {
namespace {

using openai::detect_answer_style;
using ::testing::ElementsAre, ::testing::EndsWith, ::testing::HasSubstr, ::testing::Not;

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather","description":"d",
    "parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}},
    {"type":"function","function":{"name":"get_time"}}])";

std::string chat(std::string_view more) {
  return R"({"messages":[{"role":"user","content":"Paris?"}],)" + std::string(kTools) +
         std::string(more) + "}";
}

// Says the text in pieces of three bytes.
std::function<void(const FakeJob&)> says(std::string text,
                                         contract::StopReason reason = contract::StopReason::Eos) {
  return [text = std::move(text), reason](const FakeJob& job) {
    job.start();
    for (std::size_t i = 0; i < text.size(); i += 3) job.say(text.substr(i, 3));
    job.end(reason, 9);
  };
}

void set_style(TestWorker& worker, const AnswerStyle& style) {
  auto info = std::make_shared<ModelInfo>(*worker.backend.info.get());
  info->style = style;
  worker.backend.info = std::move(info);
}

std::vector<json::Value> chunks_of(std::string_view response) {
  std::vector<json::Value> chunks;
  for (const std::string& data : data_of(response)) {
    if (data == "[DONE]") continue;
    chunks.push_back(json::parse(data).take());
  }
  return chunks;
}

const std::string kCall =
    "One moment.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"
    "</tool_call>";

TEST(ToolCalls, Whole) {
  TestWorker worker;
  worker.backend.script = says(kCall);
  const std::string response = worker.post("/v1/chat/completions", chat(""));
  ASSERT_EQ(status_of(response), 200) << response;
  const json::Value choice = json_of(response).at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  const json::Value& message = choice.at("message");
  EXPECT_EQ(message.at("content"), "One moment.");
  ASSERT_EQ(message.at("tool_calls").get_array().size(), 1U);
  const json::Value& call = message.at("tool_calls").at(0);
  EXPECT_EQ(call.at("type"), "function");
  EXPECT_TRUE(json::view(call.at("id").get_string()).starts_with("call_"));
  EXPECT_EQ(json::serialize(call.at("function")),
            R"({"name":"get_weather","arguments":"{\"city\": \"Paris\"}"})");
}

TEST(ToolCalls, ContentIsNullWithoutText) {
  TestWorker worker;
  worker.backend.script = says(R"(<tool_call>{"name": "get_time", "arguments": {}}</tool_call>)");
  const json::Value body = json_of(worker.post("/v1/chat/completions", chat("")));
  EXPECT_TRUE(body.at("choices").at(0).at("message").at("content").is_null());
}

TEST(ToolCalls, Streamed) {
  TestWorker worker;
  worker.backend.script = says(kCall);
  const auto chunks = chunks_of(worker.post("/v1/chat/completions", chat(R"(,"stream":true)")));
  std::string content;
  std::string arguments;
  std::size_t begun = 0;
  std::string finish;
  for (const json::Value& chunk : chunks) {
    const json::Value& choice = chunk.at("choices").at(0);
    const json::Object& delta = choice.at("delta").get_object();
    if (choice.at("finish_reason").is_string())
      finish = json::view(choice.at("finish_reason").get_string());
    if (const json::Value* text = delta.if_contains("content")) {
      EXPECT_EQ(begun, 0U) << "no text after the call";
      content += json::view(text->get_string());
    }
    const json::Value* calls = delta.if_contains("tool_calls");
    if (calls == nullptr) continue;
    const json::Object& call = calls->at(0).get_object();
    EXPECT_EQ(call.at("index"), 0);
    const json::Object& function = call.at("function").get_object();
    if (call.contains("id")) {
      ++begun;
      EXPECT_EQ(call.at("type"), "function");
      EXPECT_EQ(function.at("name"), "get_weather");
      EXPECT_EQ(function.at("arguments"), "");
    } else {
      EXPECT_EQ(begun, 1U) << "arguments after the beginning";
      arguments += json::view(function.at("arguments").get_string());
    }
  }
  EXPECT_EQ(begun, 1U);
  EXPECT_EQ(content, "One moment.");
  EXPECT_EQ(arguments, R"({"city": "Paris"})");
  EXPECT_EQ(finish, "tool_calls");
}

TEST(ToolCalls, WithoutToolsTheTextIsContent) {
  TestWorker worker;
  worker.backend.script = says(kCall);
  for (const std::string& body : {std::string(R"({"messages":[{"role":"user","content":"x"}]})"),
                                  chat(R"(,"tool_choice":"none")")}) {
    const json::Value choice =
        json_of(worker.post("/v1/chat/completions", body)).at("choices").at(0);
    EXPECT_EQ(choice.at("message").at("content"), kCall.c_str());
    EXPECT_FALSE(choice.at("message").get_object().contains("tool_calls"));
    EXPECT_EQ(choice.at("finish_reason"), "stop");
  }
}

TEST(ToolCalls, ACallThatIsCutHasWhatThereIs) {
  TestWorker worker;
  worker.backend.script = says(R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Pa)",
                               contract::StopReason::MaxTokens);
  const json::Value choice =
      json_of(worker.post("/v1/chat/completions", chat(""))).at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(choice.at("message").at("tool_calls").at(0).at("function").at("arguments"),
            R"({"city": "Pa)");
}

TEST(ToolCalls, ACallThatAStopTextTearsIsNoWholeCall) {
  for (const bool stream : {false, true}) {
    TestWorker worker;
    worker.backend.script = says(R"(<tool_call>{"name": "get_weather", "arguments": {"city": "Pa)",
                                 contract::StopReason::StopSequence);
    const std::string response =
        worker.post("/v1/chat/completions", chat(stream ? R"(,"stream":true)" : ""));
    const json::Value choice =
        (stream ? chunks_of(response).back() : json_of(response)).at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "stop");
  }
  TestWorker worker;
  worker.backend.script = says(kCall, contract::StopReason::StopSequence);
  const json::Value whole = json_of(worker.post("/v1/chat/completions", chat("")));
  EXPECT_EQ(whole.at("choices").at(0).at("finish_reason"), "tool_calls");
}

TEST(ToolCalls, OneIsEnoughWhenParallelOnesAreNotWanted) {
  for (const bool stream : {false, true}) {
    TestWorker worker;
    // Never ends by itself: the answer does not wait for that.
    worker.backend.script = [](const FakeJob& job) {
      job.start();
      job.say(R"(<tool_call>{"name": "get_time", "arguments": {}}</tool_call>)");
      job.say(R"(<tool_call>{"name": "get_time", "arguments": {}}</tool_call>)");
    };
    const std::string response = worker.post(
        "/v1/chat/completions", chat(stream ? R"(,"parallel_tool_calls":false,"stream":true)"
                                            : R"(,"parallel_tool_calls":false)"));
    ASSERT_EQ(status_of(response), 200);
    EXPECT_TRUE(worker.backend.wait_until_abandoned(0));
    if (stream) {
      EXPECT_EQ(chunks_of(response).back().at("choices").at(0).at("finish_reason"), "tool_calls");
      continue;
    }
    const json::Value choice = json_of(response).at("choices").at(0);
    EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
    EXPECT_EQ(choice.at("message").at("tool_calls").get_array().size(), 1U);
  }
}

TEST(ToolCalls, RequiredOnesAreBegunByThePromptAndHeldToTheirSchema) {
  TestWorker worker;
  worker.backend.script =
      says("{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>");
  const std::string response =
      worker.post("/v1/chat/completions", chat(R"(,"tool_choice":"required")"));
  ASSERT_EQ(status_of(response), 200) << response;
  const TextRequest& request = worker.backend.job(0)->request;
  EXPECT_THAT(request.prompt.text, EndsWith("<tool_call>\n"));
  EXPECT_EQ(request.format.kind, OutputFormat::Kind::ToolCalls);
  ASSERT_EQ(request.format.calls.size(), 2U);
  EXPECT_EQ(request.format.calls[0].before, R"({"name": "get_weather", "arguments": )");
  EXPECT_EQ(request.format.calls[0].after, "}");
  EXPECT_EQ(request.format.between, "\n</tool_call>\n<tool_call>\n");
  EXPECT_EQ(request.format.max_calls, 16U) << "a model that finds no end is held to one";
  const json::Value choice = json_of(response).at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_EQ(choice.at("message").at("tool_calls").at(0).at("function").at("name"), "get_weather");
}

TEST(ToolCalls, ANamedOneAlone) {
  TestWorker worker;
  worker.backend.script = says("{\"name\": \"get_time\", \"arguments\": {}}");
  worker.post(
      "/v1/chat/completions",
      chat(
          R"(,"parallel_tool_calls":false,"tool_choice":{"type":"function","function":{"name":"get_time"}})"));
  const TextRequest& request = worker.backend.job(0)->request;
  ASSERT_EQ(request.format.calls.size(), 1U);
  EXPECT_EQ(request.format.calls[0].before, R"({"name": "get_time", "arguments": )");
  EXPECT_EQ(request.format.between, "");
}

TEST(ToolCalls, ASchemaThatCannotBeEnforcedIsTheToolsFault) {
  TestWorker worker;
  worker.backend.preparation = [](const TextRequest&) -> Preparation {
    return PrepareError{{ErrorCode::InvalidArgument, "schema 0: no"}, PrepareError::Blame::Format};
  };
  const std::string response =
      worker.post("/v1/chat/completions", chat(R"(,"tool_choice":"required")"));
  EXPECT_EQ(status_of(response), 400);
  EXPECT_EQ(json_of(response).at("error").at("param"), "tools");
}

TEST(ToolCalls, ATemplateWithoutToolsGetsThemDescribed) {
  TestWorker worker;
  set_style(worker, detect_answer_style("{{ messages }}"));
  worker.backend.script = says(R"({"name": "get_weather", "parameters": {"city": "Paris"}})");
  const std::string response = worker.post("/v1/chat/completions",
                                           R"({"messages":[{"role":"user","content":"a"},
        {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"get_time","arguments":"{}"}}]},
        {"role":"tool","tool_call_id":"1","content":"noon"}],)" +
                                               std::string(kTools) + "}");
  ASSERT_EQ(status_of(response), 200) << response;
  const std::string& prompt = worker.backend.job(0)->request.prompt.text;
  EXPECT_THAT(prompt, HasSubstr(R"({"role":"system","content":"You can call functions.)"));
  EXPECT_THAT(prompt, HasSubstr(R"(get_weather)"));
  EXPECT_THAT(prompt, Not(HasSubstr(R"("tools":)")));
  EXPECT_THAT(prompt, HasSubstr(R"({\"name\":\"get_time\",\"parameters\":{}})"));
  EXPECT_THAT(prompt,
              HasSubstr(R"({"role":"user","content":"Result of the function call:\nnoon"})"));
  EXPECT_EQ(json_of(response).at("choices").at(0).at("finish_reason"), "tool_calls");
}

TEST(ToolCalls, ATemplateWithoutSystemMessagesGetsThemFromTheUser) {
  TestWorker worker;
  set_style(worker, detect_answer_style("{{ messages }}"));
  worker.backend.chat = [](const json::Object& context) -> Result<std::string> {
    const std::string text = json::serialize(context);
    if (text.find("system") != std::string::npos)
      return Error{ErrorCode::InvalidArgument, "System role not supported"};
    return text;
  };
  worker.backend.script = says("Hi");
  EXPECT_EQ(status_of(worker.post("/v1/chat/completions", chat(""))), 200);
  EXPECT_THAT(worker.backend.job(0)->request.prompt.text,
              HasSubstr(R"({"role":"user","content":"You can call functions.)"));
}

TEST(Thinking, GoesToReasoningContent) {
  TestWorker worker;
  AnswerStyle style = detect_answer_style("{{ tools }}<think></think>");
  style.special_markers = {"<think>", "</think>"};
  set_style(worker, style);
  worker.backend.script = says("<think>\nHm.\n</think>\n\nParis.");
  const std::string body = R"({"messages":[{"role":"user","content":"x"}])";
  const std::string response = worker.post("/v1/chat/completions", body + "}");
  const json::Value message = json_of(response).at("choices").at(0).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "Hm.");
  EXPECT_EQ(message.at("content"), "Paris.");
  EXPECT_TRUE(worker.backend.job(0)->request.shows_markers);
  std::string thoughts;
  std::string content;
  for (const json::Value& chunk :
       chunks_of(worker.post("/v1/chat/completions", body + R"(,"stream":true})"))) {
    const json::Object& delta = chunk.at("choices").at(0).at("delta").get_object();
    if (const json::Value* text = delta.if_contains("reasoning_content"))
      thoughts += json::view(text->get_string());
    if (const json::Value* text = delta.if_contains("content"))
      content += json::view(text->get_string());
  }
  EXPECT_EQ(thoughts, "Hm.");
  EXPECT_EQ(content, "Paris.");
}

TEST(Thinking, MayBeOpenedByThePromptAndIsClosedBeforeAForcedAnswer) {
  TestWorker worker;
  set_style(worker, detect_answer_style("{{ tools }}<think>"));
  worker.backend.chat = [](const json::Object&) -> Result<std::string> {
    return std::string("p<think>\n");
  };
  worker.backend.script = says("so</think>Yes");
  const std::string body = R"({"messages":[{"role":"user","content":"x"}])";
  const json::Value message =
      json_of(worker.post("/v1/chat/completions", body + "}")).at("choices").at(0).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "so");
  EXPECT_EQ(message.at("content"), "Yes");
  worker.backend.script = says("{}");
  const json::Value json_answer =
      json_of(worker.post("/v1/chat/completions",
                          body + R"(,"response_format":{"type":"json_object"}})"))
          .at("choices")
          .at(0)
          .at("message");
  EXPECT_EQ(json_answer.at("content"), "{}");
  EXPECT_EQ(worker.backend.job(1)->request.prompt.text, "p<think>\n\n</think>\n\n");
}

TEST(ChatFields, TemplateVariablesThoughtsAndForeignKeysOfMessages) {
  TestWorker worker;
  worker.backend.script = says("Hi");
  const std::string response = worker.post("/v1/chat/completions",
                                           R"({"messages":[{"role":"user","content":"x","my_id":7},
          {"role":"assistant","content":null,"reasoning_content":"hm","extra":{"a":1}}],
          "documents":[{"text":"d"}],"chat_template_kwargs":{"enable_thinking":false}})");
  ASSERT_EQ(status_of(response), 200) << response;
  EXPECT_EQ(
      worker.backend.job(0)->request.prompt.text,
      R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"","reasoning_content":"hm"}],"add_generation_prompt":true,"documents":[{"text":"d"}],"enable_thinking":false})");
}

TEST(Completions, ZeroTokensCountThePrompt) {
  TestWorker worker;
  const std::string response =
      worker.post("/v1/completions", R"({"prompt":["a","b"],"max_tokens":0,"echo":true})");
  ASSERT_EQ(status_of(response), 200) << response;
  const json::Value body = json_of(response);
  EXPECT_EQ(body.at("choices").at(1).at("text"), "b");
  EXPECT_EQ(body.at("choices").at(1).at("finish_reason"), "length");
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 6);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 0);
  EXPECT_EQ(worker.backend.num_jobs(), 0U);
  const auto chunks =
      chunks_of(worker.post("/v1/completions", R"({"prompt":"a","max_tokens":0,"stream":true})"));
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_EQ(chunks[0].at("choices").at(0).at("finish_reason"), "length");
}

void score_ab(const FakeJob& job) {
  EXPECT_TRUE(job.request.score_prompt);
  job.start();
  job.score({token_report("é", 0), token_report("b", -0.5F, {{"b", -0.5F}, {"c", -1.0F}})});
  if (job.request.sampling.max_tokens != 0) job.say(" x", {token_report(" x", -2.0F)});
  job.end(contract::StopReason::MaxTokens, *job.request.sampling.max_tokens);
}

TEST(Completions, EchoWithLogprobsScoresThePrompt) {
  TestWorker worker;
  worker.backend.script = score_ab;
  const std::string body = R"({"prompt":"éb","echo":true,"logprobs":2,"n":2,"max_tokens":)";
  const json::Value scored = json_of(worker.post("/v1/completions", body + "0}"));
  const std::string_view lists =
      R"({"tokens":["é","b"],"token_logprobs":[null,-0.5],)"
      R"("top_logprobs":[null,{"b":-0.5,"c":-1.0}],"text_offset":[0,1]})";
  for (const json::Value& choice : scored.at("choices").get_array()) {
    EXPECT_EQ(choice.at("text"), "éb");
    EXPECT_EQ(choice.at("logprobs"), json::parse(lists).take()) << json::serialize(choice);
    EXPECT_EQ(choice.at("finish_reason"), "length");
  }
  EXPECT_EQ(scored.at("usage").at("completion_tokens"), 0);
  const json::Value goes_on = json_of(worker.post("/v1/completions", body + "1}"));
  const json::Value& logprobs = goes_on.at("choices").at(1).at("logprobs");
  EXPECT_EQ(goes_on.at("choices").at(1).at("text"), "éb x");
  EXPECT_EQ(json::serialize(logprobs.at("tokens")), R"(["é","b"," x"])");
  EXPECT_EQ(json::serialize(logprobs.at("text_offset")), "[0,1,2]");
  EXPECT_EQ(json::serialize(logprobs.at("token_logprobs")), "[null,-0.5,-2.0]");
}

TEST(Completions, AStreamBringsTheEchoWithItsTokens) {
  TestWorker worker;
  worker.backend.script = score_ab;
  const auto chunks = chunks_of(
      worker.post("/v1/completions",
                  R"({"prompt":"éb","echo":true,"logprobs":2,"max_tokens":1,"stream":true})"));
  ASSERT_EQ(chunks.size(), 3U);
  const auto choice = [&](std::size_t i) { return chunks[i].at("choices").at(0); };
  EXPECT_EQ(choice(0).at("text"), "éb");
  EXPECT_EQ(json::serialize(choice(0).at("logprobs").at("text_offset")), "[0,1]");
  EXPECT_TRUE(choice(0).at("logprobs").at("top_logprobs").at(0).is_null());
  EXPECT_EQ(choice(1).at("text"), " x");
  EXPECT_EQ(json::serialize(choice(1).at("logprobs").at("text_offset")), "[2]");
  EXPECT_EQ(choice(2).at("finish_reason"), "length");
}

TEST(Completions, ASuffixNeedsAModelThatFillsGaps) {
  TestWorker worker;
  worker.backend.script = says("x");
  const std::string body = R"({"prompt":"def f(","suffix":"):"})";
  const std::string refused = worker.post("/v1/completions", body);
  EXPECT_EQ(status_of(refused), 400);
  EXPECT_EQ(json_of(refused).at("error").at("param"), "suffix");
  auto info = std::make_shared<ModelInfo>(*worker.backend.info.get());
  info->fills_in_middle = true;
  worker.backend.info = std::move(info);
  EXPECT_EQ(status_of(worker.post("/v1/completions", body)), 200);
  EXPECT_EQ(worker.backend.job(0)->request.prompt.suffix, "):");
}

TEST(Embeddings, DimensionsAreTheFirstOnesAtLengthOne) {
  TestWorker worker;
  worker.backend.embedding = [](const EmbedRequest&) -> Result<EmbeddingListener::Embedding> {
    return EmbeddingListener::Embedding{{3, 4, 12}, 2};
  };
  const std::string response = worker.post("/v1/embeddings", R"({"input":"x","dimensions":2})");
  ASSERT_EQ(status_of(response), 200) << response;
  const json::Array values = json_of(response).at("data").at(0).at("embedding").get_array();
  ASSERT_EQ(values.size(), 2U);
  EXPECT_NEAR(values[0].to_number<double>(), 0.6, 1e-6);
  EXPECT_NEAR(values[1].to_number<double>(), 0.8, 1e-6);
  const std::string wide = worker.post("/v1/embeddings", R"({"input":"x","dimensions":4})");
  EXPECT_EQ(status_of(wide), 400);
  EXPECT_EQ(json_of(wide).at("error").at("param"), "dimensions");
}

TEST(Models, AliasesAreNamesOfTheModel) {
  TestWorker worker;
  auto info = std::make_shared<ModelInfo>(*worker.backend.info.get());
  info->aliases = {"gpt-4", "mine"};
  worker.backend.info = std::move(info);
  worker.backend.script = says("Hi");
  std::vector<std::string> names;
  const json::Value list = json_of(worker.get("/v1/models"));
  for (const json::Value& model : list.at("data").get_array())
    names.emplace_back(json::view(model.at("id").get_string()));
  EXPECT_THAT(names, ElementsAre("fake", "gpt-4", "mine"));
  EXPECT_EQ(json_of(worker.get("/v1/models/mine")).at("id"), "mine");
  EXPECT_EQ(status_of(worker.post("/v1/completions", R"({"model":"gpt-4","prompt":"p"})")), 200);
  EXPECT_EQ(status_of(worker.post("/v1/completions", R"({"model":"gpt-5","prompt":"p"})")), 404);
}

}  // namespace
}  // namespace llorch::worker_http
