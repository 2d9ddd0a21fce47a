// OpenAI's endpoints over a real server, with a scripted backend behind them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker_http/fake_backend.h"

namespace llorch::worker_http {
namespace {

using test::say_hello;
using ::testing::ElementsAre, ::testing::HasSubstr;

TEST(Models, ListAndOne) {
  TestWorker worker;
  EXPECT_EQ(
      body_of(worker.get("/v1/models")),
      R"({"object":"list","data":[{"id":"fake","object":"model","created":1700000000,"owned_by":"llama-orch"}]})");
  EXPECT_EQ(json_of(worker.get("/v1/models/fake")).at("id"), "fake");
  const std::string missing = worker.get("/v1/models/other");
  EXPECT_EQ(status_of(missing), 404);
  EXPECT_EQ(json_of(missing).at("error").at("code"), "model_not_found");
  worker.backend.info = nullptr;
  EXPECT_EQ(body_of(worker.get("/v1/models")), R"({"object":"list","data":[]})");
}

TEST(OpenAiPaths, UnknownOnesAndWrongMethodsHaveOpenAisErrors) {
  TestWorker worker;
  for (const auto& [answer, status] : {std::pair{worker.get("/v1/nothing"), 404},
                                       std::pair{worker.get("/v1/chat/completions"), 405}}) {
    EXPECT_EQ(status_of(answer), status);
    const json::Value error = json_of(answer).at("error");
    EXPECT_EQ(error.at("type"), "invalid_request_error");
    EXPECT_TRUE(error.at("param").is_null());
  }
}

TEST(Completions, Whole) {
  TestWorker worker;
  worker.backend.script = say_hello;
  const std::string response =
      worker.post("/v1/completions", R"({"model":"fake","prompt":"Say","max_tokens":7,"seed":-1})");
  EXPECT_EQ(status_of(response), 200);
  const json::Value body = json_of(response);
  EXPECT_EQ(body.at("object"), "text_completion");
  EXPECT_EQ(body.at("model"), "fake");
  EXPECT_TRUE(json::view(body.at("id").get_string()).starts_with("cmpl-"));
  EXPECT_EQ(json::serialize(body.at("choices")),
            R"([{"index":0,"text":"Hello","logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(
      json::serialize(body.at("usage")),
      R"({"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}})");
  const TextRequest& request = worker.backend.job(0)->request;
  EXPECT_EQ(request.prompt.text, "Say");
  EXPECT_EQ(request.sampling.max_tokens, 7);
  EXPECT_EQ(request.sampling.seed, ~std::uint64_t{0});
  EXPECT_FALSE(request.shorten_to_fit);
  EXPECT_EQ(request.job_id, json::view(body.at("id").get_string()));
}

TEST(Completions, SeedsAreThoseOfExecuteToo) {
  TestWorker worker;
  worker.backend.script = say_hello;
  worker.post("/v1/completions", R"({"prompt":"x","seed":18446744073709551615})");
  worker.post("/v1/completions", R"({"prompt":"x","seed":-9223372036854775808})");
  worker.post("/v1/completions", R"({"prompt":"x","seed":7.0})");
  ASSERT_EQ(worker.backend.num_jobs(), 3U);
  EXPECT_EQ(worker.backend.job(0)->request.sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(worker.backend.job(1)->request.sampling.seed, std::uint64_t{1} << 63);
  EXPECT_EQ(worker.backend.job(2)->request.sampling.seed, 7U);
}

TEST(Completions, DefaultsAreOpenAis) {
  TestWorker worker;
  worker.backend.script = say_hello;
  worker.post("/v1/completions", R"({"prompt":[5,6]})");
  const TextRequest& request = worker.backend.job(0)->request;
  EXPECT_EQ(request.prompt.kind, TextRequest::Prompt::Kind::Ids);
  EXPECT_THAT(request.prompt.ids, ElementsAre(5, 6));
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_TRUE(request.shorten_to_fit) << "a default must not make a request fail";
  EXPECT_EQ(request.sampling.temperature, 1.0F);
  EXPECT_FALSE(request.sampling.seed.has_value());
  EXPECT_FALSE(request.top_logprobs.has_value());
}

TEST(Completions, SeveralPromptsAndChoices) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start(4, 0);
    job.say(fmt::format("{}#{}", job.request.prompt.text, *job.request.sampling.seed));
    job.end(contract::StopReason::MaxTokens, 3);
  };
  const json::Value body = json_of(
      worker.post("/v1/completions", R"({"prompt":["a","b"],"n":2,"seed":10,"echo":true})"));
  std::vector<std::string> texts;
  for (const json::Value& choice : body.at("choices").get_array()) {
    EXPECT_EQ(choice.at("index").to_number<std::size_t>(), texts.size());
    EXPECT_EQ(choice.at("finish_reason"), "length");
    texts.emplace_back(json::view(choice.at("text").get_string()));
  }
  EXPECT_THAT(texts, ElementsAre("aa#10", "aa#11", "bb#10", "bb#11"));
  // Two prompts of three tokens (the end says so), four answers of three.
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), 6);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 12);
}

TEST(Completions, LogprobsInTheOldStyle) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    job.say("hé", {token_report("h", -0.5F, {{"h", -0.5F}, {"j", -1.0F}}),
                   token_report("é", -2.0F, {{"e", -0.25F}})});
    job.say("y", {token_report("y", -0.125F)});
    job.end();
  };
  const json::Value body =
      json_of(worker.post("/v1/completions", R"({"prompt":"p","logprobs":2})"));
  EXPECT_EQ(
      json::serialize(body.at("choices").at(0).at("logprobs")),
      R"({"tokens":["h","é","y"],"token_logprobs":[-0.5,-2.0,-0.125],"top_logprobs":[{"h":-0.5,"j":-1.0},{"e":-0.25,"é":-2.0},{"y":-0.125}],"text_offset":[0,1,2]})");
  EXPECT_EQ(worker.backend.job(0)->request.top_logprobs, 2);

  const auto data =
      data_of(worker.post("/v1/completions", R"({"prompt":"p","logprobs":0,"stream":true})"));
  ASSERT_EQ(data.size(), 4U);
  EXPECT_EQ(json::serialize(parse(data[1]).at("choices").at(0).at("logprobs").at("text_offset")),
            "[2]");
  EXPECT_EQ(worker.backend.job(1)->request.top_logprobs, 0);
}

TEST(Completions, Stream) {
  TestWorker worker;
  worker.backend.script = say_hello;
  const std::string response =
      worker.post("/v1/completions",
                  R"({"prompt":"Say","stream":true,"stream_options":{"include_usage":true}})");
  EXPECT_EQ(header_of(response, "content-type"), "text/event-stream");
  const auto data = data_of(response);
  ASSERT_EQ(data.size(), 5U);
  EXPECT_EQ(parse(data[0]).at("choices").at(0).at("text"), "Hel");
  EXPECT_TRUE(parse(data[0]).at("usage").is_null());
  EXPECT_TRUE(parse(data[0]).at("choices").at(0).at("finish_reason").is_null());
  EXPECT_EQ(parse(data[1]).at("choices").at(0).at("text"), "lo");
  EXPECT_EQ(parse(data[2]).at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(json::serialize(parse(data[3]).at("choices")), "[]");
  EXPECT_EQ(parse(data[3]).at("usage").at("total_tokens"), 5);
  EXPECT_EQ(data[4], "[DONE]");
}

TEST(Completions, RefusesAndNames) {
  TestWorker worker;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({})", "prompt"},
      {R"({"prompt":""})", "prompt"},
      {R"({"prompt":[]})", "prompt"},
      {R"({"prompt":["a",1]})", "prompt"},
      {R"({"prompt":[-1]})", "prompt"},
      {R"({"prompt":"p","best_of":2})", "best_of"},
      {R"({"prompt":"p","suffix":"s"})", "suffix"},
      {R"({"prompt":"p","logprobs":6})", "logprobs"},
      {R"({"prompt":"p","logprobs":true})", "logprobs"},
      {R"({"prompt":"p","echo":true,"logprobs":1,"suffix":"s"})", "suffix"},
      {R"({"prompt":["a","b","c"],"n":22})", "n"},
      {R"({"prompt":"p","messages":[]})", "messages"},
  };
  for (const auto& [body, field] : cases) {
    const std::string response = worker.post("/v1/completions", body);
    EXPECT_EQ(status_of(response), 400) << body;
    EXPECT_EQ(json_of(response).at("error").at("param"), field.c_str()) << response;
  }
}

TEST(Embeddings, FloatsAndBase64) {
  TestWorker worker;
  worker.backend.embedding = [](const EmbedRequest& request) {
    const auto* text = std::get_if<std::string>(&request.input);
    const float x = text != nullptr ? static_cast<float>(text->size()) : 4;
    return EmbeddingListener::Embedding{{3 * x, 4 * x}, 2};
  };
  const json::Value body =
      json_of(worker.post("/v1/embeddings", R"({"model":"fake","input":["a","bbb"]})"));
  EXPECT_EQ(
      json::serialize(body),
      R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.6000000238418579,0.800000011920929]},{"object":"embedding","index":1,"embedding":[0.6000000238418579,0.800000011920929]}],"model":"fake","usage":{"prompt_tokens":4,"total_tokens":4}})");
  const json::Value coded = json_of(
      worker.post("/v1/embeddings", R"({"input":[1,2],"encoding_format":"base64","user":"u"})"));
  // 0.6f and 0.8f, little-endian: 9a 99 19 3f, cd cc 4c 3f.
  EXPECT_EQ(coded.at("data").at(0).at("embedding"), "mpkZP83MTD8=");
}

TEST(Embeddings, ManyInputsKeepTheirOrder) {
  TestWorker worker;
  worker.backend.embedding = [](const EmbedRequest& request) {
    const float x = std::stof(std::get<std::string>(request.input));
    return EmbeddingListener::Embedding{{1, x}, 1};
  };
  json::Array inputs;
  for (int i = 0; i < 300; ++i) inputs.emplace_back(fmt::format("{}", i));
  const json::Value body = json_of(
      worker.post("/v1/embeddings", json::serialize(json::Object{{"input", std::move(inputs)}})));
  for (std::size_t i = 0; i < 300; ++i) {
    const json::Value& vector = body.at("data").at(i).at("embedding");
    EXPECT_NEAR(vector.at(1).to_number<double>() / vector.at(0).to_number<double>(),
                static_cast<double>(i), 1e-2);
  }
}

TEST(Embeddings, Refusals) {
  TestWorker worker;
  worker.backend.embedding = [](const EmbedRequest&) -> Result<EmbeddingListener::Embedding> {
    return Error{ErrorCode::InvalidArgument, "70 tokens do not fit 64"};
  };
  for (const char* body :
       {R"({})", R"({"input":""})", R"({"input":[]})", R"({"input":[[]]})",
        R"({"input":"x","dimensions":4})", R"({"input":"x","encoding_format":"hex"})",
        R"({"input":"x","other":3})", R"({"input":"x"})"}) {
    EXPECT_EQ(status_of(worker.post("/v1/embeddings", body)), 400) << body;
  }
}

TEST(OpenAi, LoadingIs503) {
  TestWorker worker;
  worker.backend.info = nullptr;
  worker.backend.load = LoadStatus{LoadStatus::State::Loading, 0.5, ""};
  for (const auto& [path, body] :
       {std::pair{"/v1/completions", R"({"prompt":"p"})"},
        std::pair{"/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})"},
        std::pair{"/v1/embeddings", R"({"input":"x"})"}}) {
    const std::string response = worker.post(path, body);
    EXPECT_EQ(status_of(response), 503) << path;
    EXPECT_THAT(response, HasSubstr("50 %"));
    EXPECT_EQ(header_of(response, "retry-after"), "1");
  }
}

}  // namespace
}  // namespace llorch::worker_http
