// The field tables over a real server: what they say of a field is what happens to it.
#include <gtest/gtest.h>

#include "openai/field_table.h"
#include "worker_http/fake_backend.h"

namespace llorch::worker_http {
namespace {

using openai::chat_fields;
using openai::completion_fields;
using openai::embedding_fields;
using openai::FieldSpec;
using openai::Treatment;

TEST(OpenAiFields, EveryBookkeepingFieldIsAcceptedAndEveryRefusedOneNamed) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    job.end(contract::StopReason::Eos, 0);
  };
  const auto check = [&](std::string_view path, const json::Object& base,
                         std::span<const FieldSpec> fields) {
    for (const FieldSpec& field : fields) {
      json::Object body = base;
      if (field.treatment == Treatment::Bookkeeping) {
        body[field.name] = field.name == "metadata" ? json::Value(json::Object{{"a", "b"}}) : "x";
        EXPECT_EQ(status_of(worker.post(path, json::serialize(body))), 200) << field.name;
      }
      if (field.treatment != Treatment::Refused) continue;
      body[field.name] = "something";
      const std::string response = worker.post(path, json::serialize(body));
      EXPECT_EQ(status_of(response), 400) << field.name;
      EXPECT_EQ(json_of(response).at("error").at("param"), json::Value(field.name));
      body[field.name] = nullptr;
      EXPECT_EQ(status_of(worker.post(path, json::serialize(body))), 200) << field.name;
      if (field.neutral.empty()) continue;
      body[field.name] = parse(field.neutral);
      EXPECT_EQ(status_of(worker.post(path, json::serialize(body))), 200) << field.name;
    }
  };
  check("/v1/completions", json::Object{{"prompt", "p"}}, completion_fields());
  check("/v1/chat/completions",
        parse(R"({"messages":[{"role":"user","content":"x"}]})").get_object(), chat_fields());
}

// A field of the wrong type is an error that names it: so it is really read.
TEST(OpenAiFields, EveryHonouredFieldIsRead) {
  TestWorker worker;
  const auto check = [&](std::string_view path, const json::Object& base,
                         std::span<const FieldSpec> fields) {
    for (const FieldSpec& field : fields) {
      if (field.treatment != Treatment::Honoured && field.treatment != Treatment::Required)
        continue;
      json::Object body = base;
      body[field.name] =
          field.name == "model" ? json::Value(7) : json::Value(json::Array{json::Object()});
      const bool takes_lists =
          field.name == "prompt" || field.name == "input" || field.name == "documents";
      if (takes_lists) body[field.name] = true;
      const std::string response = worker.post(path, json::serialize(body));
      EXPECT_EQ(status_of(response), 400) << field.name;
      const json::Value answer = json_of(response);
      EXPECT_TRUE(json::view(answer.at("error").at("param").get_string()).starts_with(field.name))
          << response;
    }
  };
  check("/v1/completions", json::Object{{"prompt", "p"}}, completion_fields());
  check("/v1/chat/completions",
        parse(R"({"messages":[{"role":"user","content":"x"}]})").get_object(), chat_fields());
  check("/v1/embeddings", json::Object{{"input", "p"}}, embedding_fields());
}

}  // namespace
}  // namespace llorch::worker_http
