// /openapi.json against the router, the parsers and real answers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "contract/inference.h"
#include "http/sse.h"
#include "support/schema_check.h"
#include "worker_http/fake_backend.h"

namespace llorch::worker_http {
namespace {

using ::llorch::test::check_named;
using ::testing::IsEmpty;

std::string pattern_of(const http::Router::Route& route) {
  std::string path;
  for (const auto& segment : route.segments)
    path += segment.is_param ? "/{" + segment.text + "}" : "/" + segment.text;
  return path;
}

TEST(OpenApi, HasEveryRouteAndNoOther) {
  test::FakeBackend backend;
  const http::Router router = make_router(backend, {});
  std::set<std::string> served;
  for (const http::Router::Route& route : router.routes())
    served.insert(fmt::format("{} {}", http::method_name(route.method), pattern_of(route)));
  std::set<std::string> documented;
  const json::Object document = openapi_document();
  for (const auto& path : document.at("paths").get_object()) {
    for (const auto& operation : path.value().get_object()) {
      documented.insert(
          fmt::format("{} {}", operation.key() == "get" ? "GET" : "POST", json::view(path.key())));
    }
  }
  EXPECT_EQ(served, documented);
  EXPECT_EQ(served.size(), 13U);
}

// Every "$ref" points somewhere.
void check_refs(const json::Object& schemas, const json::Value& value) {
  if (const json::Object* object = value.if_object()) {
    for (const auto& field : *object) {
      if (field.key() == "$ref") {
        const std::string_view path = json::view(field.value().get_string());
        EXPECT_TRUE(path.starts_with("#/components/schemas/")) << path;
        EXPECT_TRUE(schemas.contains(path.substr(path.rfind('/') + 1))) << path;
      }
      check_refs(schemas, field.value());
    }
  }
  if (const json::Array* array = value.if_array()) {
    for (const json::Value& entry : *array) check_refs(schemas, entry);
  }
}

TEST(OpenApi, IsServedAndComplete) {
  TestWorker worker;
  const std::string response = worker.get("/openapi.json");
  EXPECT_EQ(status_of(response), 200);
  const json::Value document = json_of(response);
  EXPECT_EQ(document.at("openapi"), "3.1.0");
  check_refs(document.at("components").at("schemas").get_object(), document);
}

// The contract's parser and the schema of /execute must know the same fields.
TEST(OpenApi, ExecuteFieldsAreThoseOfTheParser) {
  contract::InferenceRequest request;
  request.job_id = "j";
  request.prompt = "p";
  request.sampling.seed = 1;
  request.sampling.max_tokens = 2;
  request.resume_ids = {{3}};
  const json::Object all = contract::to_json(request);
  request.prompt_ids = {{4}};
  const json::Object with_ids = contract::to_json(request);
  std::set<std::string> parsed;
  for (const auto& field : all) parsed.emplace(json::view(field.key()));
  for (const auto& field : with_ids) parsed.emplace(json::view(field.key()));
  std::set<std::string> documented;
  const json::Object document = openapi_document();
  const json::Value& schema = document.at("components").at("schemas").at("ExecuteRequest");
  for (const auto& field : schema.at("properties").get_object())
    documented.emplace(json::view(field.key()));
  EXPECT_EQ(parsed, documented);
  std::vector<json::FieldError> errors;
  EXPECT_TRUE(contract::parse_inference_request(json::serialize(all), errors).ok());
  EXPECT_THAT(check_named(openapi_document(), "ExecuteRequest", all), IsEmpty());
  EXPECT_THAT(check_named(openapi_document(), "ExecuteRequest", with_ids), IsEmpty());
}

// The bounds in the document are those of the parser: what one accepts the other accepts.
TEST(OpenApi, ExecuteBoundsAreThoseOfTheParser) {
  const json::Object document = openapi_document();
  const std::vector<std::pair<std::string, std::vector<std::string>>> values = {
      {"temperature", {"0", "2", "2.1", "-0.1", "\"1\""}},
      {"top_p", {"0", "1", "1.1"}},
      {"min_p", {"0", "1", "-1"}},
      {"top_k", {"0", "-1", "5"}},
      {"repetition_penalty", {"0", "0.1", "2", "2.1"}},
      {"max_tokens", {"0", "1"}},
      {"seed", {"0", "18446744073709551615", "-1"}},
      {"stop", {"[]", "[\"a\"]", "[\"\"]", "[\"a\",\"b\",\"c\",\"d\",\"e\"]", "\"a\""}},
      {"job_id", {"\"\"", "\"a b\"", "\"ok\""}},
      {"prompt", {"\"\"", "\"x\"", "7"}},
  };
  for (const auto& [field, texts] : values) {
    for (const std::string& text : texts) {
      json::Object body{{"job_id", "j"}, {"prompt", "p"}};
      body[field] = json::parse(text).value();
      std::vector<json::FieldError> errors;
      const bool accepted = contract::parse_inference_request(json::serialize(body), errors).ok();
      EXPECT_EQ(accepted, check_named(document, "ExecuteRequest", body).empty())
          << field << " = " << text;
    }
  }
}

void answer_with_logprobs(const FakeJob& job) {
  job.start();
  job.say("Hi", {token_report("Hi", -0.5F, {{"Ho", -1.0F}})});
  job.end();
}

TEST(OpenApi, AnswersFitTheirSchemas) {
  TestWorker worker;
  worker.backend.script = answer_with_logprobs;
  worker.backend.embedding = [](const EmbedRequest&) {
    return EmbeddingListener::Embedding{{1, 2}, 1};
  };
  const json::Object document = openapi_document();
  const std::string chat = R"({"messages":[{"role":"user","content":"x"}])";
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"/tokenize", R"({"text":"x"})", "TokenizeAnswer"},
      {"/detokenize", R"({"tokens":[1]})", "DetokenizeAnswer"},
      {"/shutdown", "", "ShutdownAnswer"},
      {"/v1/completions", R"({"prompt":"p"})", "Completion"},
      {"/v1/completions", R"({"prompt":"p","logprobs":1})", "Completion"},
      {"/v1/chat/completions", chat + "}", "ChatCompletion"},
      {"/v1/chat/completions", chat + R"(,"logprobs":true})", "ChatCompletion"},
      {"/v1/embeddings", R"({"input":"x"})", "EmbeddingList"},
      {"/v1/embeddings", R"({"input":"x","encoding_format":"base64"})", "EmbeddingList"},
      {"/execute", R"({"job_id":"","x":2})", "Error"},
      {"/cancel", R"({"job_id":"none"})", "Error"},
      {"/v1/completions", R"({})", "OpenAiError"},
      {"/v1/chat/completions", R"({})", "OpenAiError"},
      {"/v1/embeddings", "[]", "OpenAiError"},
  };
  for (const auto& [path, body, schema] : cases)
    EXPECT_THAT(check_named(document, schema, json_of(worker.post(path, body))), IsEmpty()) << path;
  EXPECT_THAT(check_named(document, "HealthReport", json_of(worker.get("/health"))), IsEmpty());
  EXPECT_THAT(check_named(document, "ModelList", json_of(worker.get("/v1/models"))), IsEmpty());
  EXPECT_THAT(check_named(document, "Model", json_of(worker.get("/v1/models/fake"))), IsEmpty());
  EXPECT_THAT(check_named(document, "Document", json_of(worker.get("/openapi.json"))), IsEmpty());
  const std::string id = worker.backend.job(0)->request.job_id;
  EXPECT_THAT(check_named(document, "CancelAnswer",
                          json_of(worker.post("/cancel", fmt::format(R"({{"job_id":"{}"}})", id)))),
              IsEmpty());
}

TEST(OpenApi, EventsFitTheirSchemas) {
  TestWorker worker;
  worker.backend.script = answer_with_logprobs;
  const json::Object document = openapi_document();
  const auto check = [&](std::string_view path, std::string_view body, std::string_view schema) {
    http::SseReader reader;
    std::vector<http::SseEvent> events;
    ASSERT_TRUE(reader.feed(http::test::dechunk(worker.post(path, body)), events).ok());
    ASSERT_GE(events.size(), 3U);
    for (const http::SseEvent& event : events) {
      if (event.data == "[DONE]") continue;
      std::string name(schema);
      if (name.empty())
        name = event.event == "started" ? "StartedEvent"
               : event.event == "token" ? "TokenEvent"
                                        : "EndEvent";
      EXPECT_THAT(check_named(document, name, json::parse(event.data).value()), IsEmpty())
          << event.data;
    }
  };
  check("/execute", R"({"job_id":"j","prompt":"p"})", "");
  check("/v1/completions",
        R"({"prompt":"p","stream":true,"logprobs":1,"stream_options":{"include_usage":true}})",
        "Completion");
  check("/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"x"}],"stream":true,"logprobs":true,
            "stream_options":{"include_usage":true}})",
        "ChatCompletionChunk");
}

// Nobody may use a document that says less than the code: the checker itself must be able to fail.
TEST(OpenApi, TheCheckerNoticesWhatIsWrong) {
  const json::Object document = openapi_document();
  json::Value health = json_of(TestWorker().get("/health"));
  health.get_object()["surprise"] = 1;
  EXPECT_EQ(check_named(document, "HealthReport", health).size(), 1U);
  health.get_object().erase("surprise");
  health.get_object().erase("model");
  EXPECT_EQ(check_named(document, "HealthReport", health).size(), 1U);
}

}  // namespace
}  // namespace llorch::worker_http
