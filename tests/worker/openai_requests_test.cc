// What llorch-cpud answers on OpenAI's paths.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/file.h"
#include "base/utf8.h"
#include "worker/worker_fixture.h"

namespace llorch::test {
namespace {

using ::testing::HasSubstr;

TEST(WorkerOpenAi, ChatUsesTheModelsTemplate) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const json::Value chat = parse(
      worker
          .post(
              "/v1/chat/completions",
              R"({"model":"test-model","messages":[{"role":"user","content":"hi <|im_end|>"}],"max_tokens":6,
                      "temperature":0,"logprobs":true,"top_logprobs":2})")
          .body);
  // The user's <|im_end|> is text, the template's are tokens.
  json::Array prompt;
  for (const auto& [text, is_template] : {std::pair("<|begin|><|im_start|>", true),
                                          {"user\nhi <|im_end|>", false},
                                          {"<|im_end|>", true},
                                          {"\n", true},
                                          {"<|im_start|>", true},
                                          {"assistant\n", true}}) {
    const json::Value tokens = parse(
        worker
            .post("/tokenize",
                  json::serialize(json::Object{{"text", text}, {"parse_special", is_template}}))
            .body);
    for (const json::Value& id : tokens.at("tokens").get_array()) prompt.push_back(id);
  }
  EXPECT_EQ(chat.at("usage").at("prompt_tokens"), prompt.size());
  // The same prompt as ids gives the same answer.
  const json::Value plain = parse(
      worker
          .post("/v1/completions", json::serialize(json::Object{
                                       {"prompt", prompt}, {"max_tokens", 6}, {"temperature", 0}}))
          .body);
  EXPECT_EQ(plain.at("choices").at(0).at("text"),
            chat.at("choices").at(0).at("message").at("content"));
  const json::Array& content = chat.at("choices").at(0).at("logprobs").at("content").get_array();
  ASSERT_EQ(content.size(), 6U);
  for (const json::Value& token : content) {
    ASSERT_EQ(token.at("top_logprobs").get_array().size(), 2U);
    EXPECT_EQ(token.at("logprob"), token.at("top_logprobs").at(0).at("logprob"))
        << "greedy takes the best";
    EXPECT_LE(token.at("logprob").to_number<double>(), 0);
  }
}

// Pitfall 48 of the original project: the tokenizer adds BOS, and so does the template.
TEST(WorkerOpenAi, BosIsThereOnceAlsoWhereTokenizerAndTemplateBothAddIt) {
  const TempDir folder;
  write_test_model(folder / "model");
  const std::filesystem::path file = folder / "model/tokenizer_config.json";
  json::Value config =
      json::parse(base::read_text_file(file, std::size_t{1} << 20).value()).value();
  config.get_object()["add_bos_token"] = true;
  std::ofstream(file) << json::serialize(config);
  WorkerFixture worker(folder / "model", {});
  ASSERT_TRUE(worker.wait_until_healthy());
  const auto ids_of = [&](std::string_view text, std::string_view flag) {
    return parse(worker
                     .post("/tokenize",
                           json::serialize(json::Object{{"text", text}, {std::string(flag), true}}))
                     .body)
        .at("tokens")
        .get_array();
  };
  const json::Array bos = ids_of("<|begin|>", "parse_special");
  ASSERT_EQ(bos.size(), 1U);
  // A text begins with it.
  json::Array text = ids_of("hi", "add_special");
  EXPECT_EQ(text.front(), bos.front());
  EXPECT_EQ(std::count(text.begin(), text.end(), bos.front()), 1);
  // A chat has the template's and no other: it is the prompt of exactly these ids.
  const json::Array prompt =
      ids_of("<|begin|><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "parse_special");
  ASSERT_EQ(std::count(prompt.begin(), prompt.end(), bos.front()), 1);
  json::Array twice = prompt;
  twice.insert(twice.begin(), bos.front());
  const auto write_on = [&](const json::Array& ids) {
    return parse(
        worker
            .post("/v1/completions",
                  json::serialize(json::Object{
                      {"prompt", ids}, {"max_tokens", 12}, {"temperature", 0}, {"logprobs", 1}}))
            .body);
  };
  const json::Value chat = parse(
      worker
          .post(
              "/v1/chat/completions",
              R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":12,"temperature":0,"logprobs":true})")
          .body);
  EXPECT_EQ(chat.at("usage").at("prompt_tokens"), prompt.size());
  const auto first_logprob = [](const json::Value& completion) {
    return completion.at("choices").at(0).at("logprobs").at("token_logprobs").at(0);
  };
  const json::Value once = write_on(prompt);
  EXPECT_EQ(chat.at("choices").at(0).at("message").at("content"),
            once.at("choices").at(0).at("text"));
  EXPECT_EQ(chat.at("choices").at(0).at("logprobs").at("content").at(0).at("logprob"),
            first_logprob(once));
  EXPECT_NE(first_logprob(once), first_logprob(write_on(twice))) << "or this would prove nothing";
}

TEST(WorkerOpenAi, AChosenTemplateReplacesTheModelsOwn) {
  const TempDir folder;
  const std::string file = folder / "mine.jinja";
  std::ofstream(file) << "Q: {{ messages[0].content }} A:";
  const std::pair<std::string, std::string> cases[] = {
      {file, "Q: hi A:"},
      {"chatml", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"},
  };
  for (const auto& [name, prompt] : cases) {
    WorkerFixture worker(kQuick, {"--chat-template", name});
    ASSERT_TRUE(worker.wait_until_healthy()) << name;
    const json::Value chat = parse(
        worker
            .post("/v1/chat/completions",
                  R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":6,"temperature":0})")
            .body);
    const json::Value tokens =
        parse(worker
                  .post("/tokenize",
                        json::serialize(json::Object{{"text", prompt}, {"parse_special", true}}))
                  .body);
    EXPECT_EQ(chat.at("usage").at("prompt_tokens"), tokens.at("count")) << name;
    const json::Value plain = parse(
        worker
            .post("/v1/completions",
                  json::serialize(json::Object{
                      {"prompt", tokens.at("tokens")}, {"max_tokens", 6}, {"temperature", 0}}))
            .body);
    EXPECT_EQ(plain.at("choices").at(0).at("text"),
              chat.at("choices").at(0).at("message").at("content"))
        << name;
  }
}

TEST(WorkerOpenAi, StructuredOutputHolds) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  for (int seed = 0; seed < 5; ++seed) {
    const json::Value answer =
        parse(worker
                  .post("/v1/chat/completions",
                        fmt::format(R"({{"messages":[{{"role":"user","content":"x"}}],"seed":{},
                       "response_format":{{"type":"json_schema","json_schema":{{"name":"n","schema":
                         {{"type":"object","properties":{{"yes":{{"type":"boolean"}},"kind":{{"enum":["a","b"]}},
                           "name":{{"type":"string","maxLength":5}}}},
                          "required":["yes","kind","name"],"additionalProperties":false}}}}}}}})",
                                    seed))
                  .body);
    const json::Value& choice = answer.at("choices").at(0);
    ASSERT_EQ(choice.at("finish_reason"), "stop") << json::serialize(answer);
    const json::Value value = parse(json::view(choice.at("message").at("content").get_string()));
    EXPECT_TRUE(value.at("yes").is_bool());
    EXPECT_TRUE(value.at("kind") == "a" || value.at("kind") == "b");
    EXPECT_LE(base::count_scalars(json::view(value.at("name").get_string())), 5U);
  }
  const http::Response refused = worker.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",
          "json_schema":{"name":"n","schema":{"type":"string","pattern":"\\ba"}}}})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("pattern"));
}

TEST(WorkerOpenAi, BiasAndPenaltiesChangeTheAnswer) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const auto text = [&](std::string_view more) {
    const json::Value answer = parse(
        worker
            .post("/v1/completions",
                  fmt::format(R"({{"prompt":"Once","max_tokens":30,"temperature":0{}}})", more))
            .body);
    return std::string(json::view(answer.at("choices").at(0).at("text").get_string()));
  };
  const std::string plain = text("");
  const json::Value ids = parse(worker.post("/tokenize", R"({"text":"A"})").body);
  const std::int64_t id = ids.at("tokens").at(0).to_number<std::int64_t>();
  EXPECT_EQ(text(fmt::format(R"(,"logit_bias":{{"{}":100}})", id)), std::string(30, 'A'));
  EXPECT_NE(text(R"(,"frequency_penalty":2,"presence_penalty":2)"), plain);
  EXPECT_EQ(text(R"(,"frequency_penalty":0,"echo":true)"), "Once" + plain);
}

// A prompt is scored as the same tokens are when the model says them itself.
TEST(WorkerOpenAi, EchoWithLogprobsScoresThePrompt) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const auto complete = [&](json::Value prompt, std::string_view more) {
    json::Object body{{"prompt", std::move(prompt)}, {"temperature", 0}, {"logprobs", 3}};
    const json::Value fields = parse(more);
    for (const auto& field : fields.get_object()) body.insert(field);
    const http::Response response = worker.post("/v1/completions", json::serialize(body));
    EXPECT_EQ(response.status, 200) << response.body;
    return parse(response.body).at("choices").at(0);
  };
  const json::Value said = complete("Once upon", R"({"max_tokens":90,"echo":true})");
  const json::Array& tokens = said.at("logprobs").at("tokens").get_array();
  const std::size_t count = tokens.size();
  // The same tokens as a prompt: through ids, for a text could be read otherwise.
  json::Array ids =
      parse(worker.post("/tokenize", R"({"text":"Once upon","add_special":true})").body)
          .at("tokens")
          .get_array();
  const std::size_t given = ids.size();
  ASSERT_EQ(count, given + 90);
  const json::Value all = complete("Once upon", R"({"max_tokens":90})");
  EXPECT_EQ(all.at("logprobs").at("tokens").get_array().size(), 90U);
  for (std::size_t i = 0; i < 90; ++i) {
    const json::Value one = parse(
        worker.post("/tokenize", json::serialize(json::Object{{"text", tokens[given + i]}})).body);
    if (one.at("tokens").get_array().size() != 1) break;  // part of a character
    ids.push_back(one.at("tokens").at(0));
  }
  ASSERT_GT(ids.size(), given + 10);
  const json::Value scored = complete(ids, R"({"max_tokens":0,"echo":true})");
  EXPECT_EQ(scored.at("finish_reason"), "length");
  const json::Value& logprobs = scored.at("logprobs");
  ASSERT_EQ(logprobs.at("tokens").get_array().size(), ids.size());
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  for (std::size_t i = given; i < ids.size(); ++i) {
    EXPECT_EQ(logprobs.at("tokens").at(i), tokens[i]);
    EXPECT_EQ(logprobs.at("token_logprobs").at(i), said.at("logprobs").at("token_logprobs").at(i));
    EXPECT_EQ(logprobs.at("top_logprobs").at(i), said.at("logprobs").at("top_logprobs").at(i));
  }
  // Each token stands where its place says.
  const std::string text(json::view(said.at("text").get_string()));
  for (std::size_t i = given; i < ids.size(); ++i) {
    const auto place = said.at("logprobs").at("text_offset").at(i).to_number<std::size_t>();
    const std::string token(json::view(tokens[i].get_string()));
    if (token.size() == 1 && base::count_scalars(text) == text.size()) {
      EXPECT_EQ(text.substr(place, 1), token) << i;
    }
  }
  EXPECT_TRUE(worker.wait_until_idle());
}

TEST(WorkerOpenAi, EmbeddingsAreUnitVectorsAndRepeatable) {
  WorkerFixture worker;
  ASSERT_TRUE(worker.wait_until_healthy());
  const json::Value answer =
      parse(worker.post("/v1/embeddings", R"({"input":["one","two","one"]})").body);
  const json::Array& data = answer.at("data").get_array();
  ASSERT_EQ(data.size(), 3U);
  double norm = 0;
  for (const json::Value& value : data[0].at("embedding").get_array())
    norm += value.to_number<double>() * value.to_number<double>();
  EXPECT_NEAR(norm, 1, 1e-5);
  EXPECT_EQ(data[0].at("embedding").get_array().size(), 64U);
  EXPECT_EQ(data[0].at("embedding"), data[2].at("embedding"));
  EXPECT_NE(data[0].at("embedding"), data[1].at("embedding"));
  EXPECT_TRUE(worker.wait_until_idle());
}

}  // namespace
}  // namespace llorch::test
