#include "orchestrator/task_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "contract/fleet_api.h"
#include "orchestrator/routes.h"

namespace llorch::orchestrator {
namespace {

http::Request task(std::string body) {
  http::Request request;
  request.method = http::Method::Post;
  request.headers.add("Content-Type", "application/json");
  request.body = std::move(body);
  request.correlation_id = "c-1";
  return request;
}

std::vector<std::string> fields_of(const std::vector<json::FieldError>& errors) {
  std::vector<std::string> fields;
  for (const json::FieldError& error : errors) fields.push_back(error.field);
  std::sort(fields.begin(), fields.end());
  return fields;
}

TEST(TaskRequest, AnExecuteKeepsWhatItsWorkerIsSent) {
  http::Request request = task(
      R"({"model":"tiny","prompt":"Hello","max_tokens":5,"seed":9,"class":"batch","detach":true,
"mode":"pin","host":"box","labels":["fast"],"deadline_ms":99})");
  request.headers.add("Idempotency-Key", "word");
  std::vector<json::FieldError> errors;
  const Result<Submission> read = read_task_request(request, {.key = {3}}, errors);
  ASSERT_TRUE(read.ok()) << read.error().message;
  const fleet::SubmittedRecord& facts = read->facts;
  EXPECT_EQ(facts.key.value, 3U);
  EXPECT_EQ(facts.kind, fleet::JobKind::Execute);
  EXPECT_EQ(facts.cls, fleet::JobClass::Batch);
  EXPECT_EQ(facts.holder, fleet::Holder::Detached);
  EXPECT_EQ(facts.mode, fleet::Mode::Pin);
  EXPECT_EQ(facts.pin_host, "box");
  EXPECT_EQ(facts.labels, std::vector<std::string>{"fast"});
  EXPECT_EQ(facts.deadline_ms, 99);
  EXPECT_EQ(facts.seed, 9U);
  EXPECT_EQ(facts.max_tokens, 5U);
  EXPECT_EQ(facts.model_name, "tiny");
  EXPECT_EQ(facts.idempotency, "word");
  EXPECT_EQ(facts.correlation_id, "c-1");
  const json::Value body = json::parse(*read->body).take();
  EXPECT_EQ(body.as_object().at("prompt").as_string(), "Hello");
  for (const char* name : {"job_id", "seed", "resume", "model", "class", "host"})
    EXPECT_FALSE(body.as_object().contains(name)) << name;
}

TEST(TaskRequest, EveryFailureIsNamedAtOnce) {
  std::vector<json::FieldError> errors;
  EXPECT_FALSE(read_task_request(task(R"({"prompt":"x","temperature":5,"colour":1,"class":"urgent",
"host":"box","job_id":"mine"})"),
                                 {}, errors)
                   .ok());
  EXPECT_EQ(fields_of(errors), (std::vector<std::string>{"class", "colour", "host", "job_id",
                                                         "model", "temperature"}));
  const Result<Submission> chat =
      read_task_request(task(R"({"kind":"chat","model":"m","colour":1})"), {}, errors);
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(
      chat.error().message,
      "colour is unknown beside a request; request is required: the body of OpenAI's endpoint "
      "of this kind");
  EXPECT_EQ(fields_of(errors), (std::vector<std::string>{"colour", "request"}));
  const Result<Submission> number =
      read_task_request(task(R"({"prompt":"x","model":5})"), {}, errors);
  ASSERT_FALSE(number.ok());
  EXPECT_EQ(number.error().message, "model must be a string, not an integer");
  http::Request odd = task(R"({"model":"m","prompt":"x","labels":["gpu","a b"]})");
  odd.headers.add("Idempotency-Key", "");
  EXPECT_FALSE(read_task_request(odd, {}, errors).ok());
  EXPECT_EQ(fields_of(errors), (std::vector<std::string>{"Idempotency-Key", "labels"}));
}

TEST(TaskRequest, AChatIsSentAsItCame) {
  std::vector<json::FieldError> errors;
  const Result<Submission> read = read_task_request(
      task(
          R"({"kind":"chat","request":{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"n":2,
"max_tokens":7}})"),
      {}, errors);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->facts.kind, fleet::JobKind::Chat);
  EXPECT_EQ(read->facts.choices, 2U);
  EXPECT_EQ(read->facts.max_tokens, 7U);
  EXPECT_EQ(read->facts.model_name, "tiny");
  EXPECT_EQ(read->facts.holder, fleet::Holder::Followed);
  EXPECT_EQ(json::parse(*read->body)->as_object().at("n").as_int64(), 2);
  EXPECT_NE(read->facts.seed, 0U);
}

TEST(TaskRequest, EmbeddingsAreNoTask) {
  std::vector<json::FieldError> errors;
  const Result<Submission> read = read_task_request(
      task(R"({"kind":"embedding","request":{"model":"tiny","input":"Hi"}})"), {}, errors);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::InvalidArgument);
  EXPECT_NE(read.error().message.find("/v1/embeddings"), std::string::npos);
}

TEST(TaskRequest, TheEarlierDeadlineCounts) {
  http::Request request = task(R"({"model":"tiny","prompt":"x","deadline_ms":5000})");
  request.deadline = std::chrono::system_clock::time_point(std::chrono::milliseconds(4000));
  std::vector<json::FieldError> errors;
  EXPECT_EQ(read_task_request(request, {}, errors)->facts.deadline_ms, 4000);
}

TEST(TaskRequest, PromptsWithTheSameBeginningShareTheirHashes) {
  const std::string head(1024, 'x');
  const auto a = prefix_hashes(head + std::string(300, 'a'));
  const auto b = prefix_hashes(head + std::string(300, 'b'));
  ASSERT_EQ(a.size(), 5U);
  ASSERT_EQ(b.size(), 5U);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 4, b.begin()));
  EXPECT_NE(a[4], b[4]);
  EXPECT_EQ(prefix_hashes(std::string(1 << 20, 'x')).size(), 64U);
  EXPECT_TRUE(prefix_hashes("short").empty());
}

// Every schema that the document names is in it.
void check_references(const json::Object& document, const json::Value& value) {
  if (const json::Object* object = value.if_object()) {
    for (const auto& [name, member] : *object) {
      if (name == "$ref") {
        const std::string path(member.as_string());
        const std::string schema = path.substr(path.rfind('/') + 1);
        EXPECT_TRUE(
            document.at("components").as_object().at("schemas").as_object().contains(schema))
            << schema;
      }
      check_references(document, member);
    }
  } else if (const json::Array* array = value.if_array()) {
    for (const json::Value& one : *array) check_references(document, one);
  }
}

TEST(Openapi, NamesOnlyWhatItDescribes) {
  const json::Object document = openapi_document();
  check_references(document, json::Value(document));
  EXPECT_TRUE(document.at("paths").as_object().contains("/v2/tasks/{id}/events"));
}

}  // namespace
}  // namespace llorch::orchestrator
