// OpenAI's endpoints for whoever moves answers: ids in chunks, and going on after ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker_http/fake_backend.h"

namespace llorch::worker_http {
namespace {

using ::testing::ElementsAre, ::testing::EndsWith, ::testing::HasSubstr, ::testing::IsEmpty,
    ::testing::Not;

constexpr std::string_view kWithIds = "Content-Type: application/json\r\nX-Llorch-Ids: 1\r\n";

void say_hello(const FakeJob& job) {
  job.start();
  job.say_ids("Hel", {5});
  job.say_ids("lo", {6, 7});
  job.say_ids("!", {8}, true);
  job.end(contract::StopReason::Eos, 4);
}

TEST(OpenAiIds, AreTheLastMemberOfChunksWhereTheyAreAskedFor) {
  TestWorker worker;
  worker.backend.script = say_hello;
  const std::string body =
      R"({"messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"include_usage":true}})";
  const auto data = data_of(worker.post("/v1/chat/completions", body, kWithIds));
  ASSERT_EQ(data.size(), 7U);
  EXPECT_THAT(data[0], HasSubstr(R"("role":"assistant")"));
  EXPECT_THAT(data[1], EndsWith(R"("usage":null,"llorch":{"ids":[5]}})"));
  EXPECT_THAT(data[2], EndsWith(R"("usage":null,"llorch":{"ids":[6,7]}})"));
  EXPECT_THAT(data[3], HasSubstr(R"("content":"!")"));
  EXPECT_THAT(data[3], Not(HasSubstr("llorch\":{")));
  EXPECT_THAT(data[4], EndsWith(R"("usage":null,"llorch":{"ids":[8]}})"));
  EXPECT_THAT(data[4], HasSubstr(R"("finish_reason":"stop")"));
  EXPECT_THAT(data[5], HasSubstr(R"("completion_tokens":4)"));
  EXPECT_EQ(data[6], "[DONE]");
  for (const std::string& chunk : data_of(worker.post("/v1/chat/completions", body, kJson)))
    EXPECT_THAT(chunk, Not(HasSubstr("llorch\":{")));
}

TEST(OpenAiResume, AChoiceGoesOnWithoutAFirstChunk) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    if (!job.request.told.empty()) job.tell({{"Hel", {5}}});
    job.say_ids("lo", {6});
    job.end(contract::StopReason::Eos, 2);
  };
  const std::string response = worker.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"user","content":"x"}],"stream":true,"n":2,"seed":40,"llorch":{"resume_ids":[[5],[]]}})",
      kWithIds);
  ASSERT_EQ(status_of(response), 200) << response;
  std::vector<std::string> first;
  std::vector<std::string> second;
  for (const std::string& chunk : data_of(response)) {
    if (chunk.find(R"("index":0)") != std::string::npos) first.push_back(chunk);
    if (chunk.find(R"("index":1)") != std::string::npos) second.push_back(chunk);
  }
  ASSERT_EQ(first.size(), 2U);
  EXPECT_THAT(first[0], HasSubstr(R"("content":"lo")"));
  ASSERT_EQ(second.size(), 3U) << "nothing of it was told: it begins as it always does";
  EXPECT_THAT(second[0], HasSubstr(R"("role":"assistant")"));
  EXPECT_THAT(worker.backend.job(0)->request.told, ElementsAre(5));
  EXPECT_EQ(worker.backend.job(0)->request.sampling.seed, 40U);
  EXPECT_THAT(worker.backend.job(1)->request.told, IsEmpty());
  EXPECT_EQ(worker.backend.job(1)->request.sampling.seed, 41U) << "by its place, whatever was told";
}

TEST(OpenAiResume, AWholeAnswerHasAllOfIt) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    job.tell({{"Hel", {5}}});
    job.say_ids("lo", {6});
    job.end(contract::StopReason::Eos, 2);
  };
  const json::Value body = json_of(worker.post(
      "/v1/completions", R"({"prompt":"Say: ","echo":true,"seed":1,"llorch":{"resume_ids":[5]}})"));
  EXPECT_EQ(body.at("choices").at(0).at("text"), "Say: Hello");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 2);
}

TEST(OpenAiResume, WhatWasToldMayBeLong) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    std::vector<std::pair<std::string, std::vector<std::int32_t>>> told;
    for (std::int32_t i = 0; i < 1000; ++i) told.push_back({"x", {i % 100}});
    job.tell(std::move(told));
    job.say_ids("end", {6});
    job.end(contract::StopReason::Eos, 1001);
  };
  const std::string body =
      R"({"messages":[{"role":"user","content":"x"}],"seed":1,"llorch":{"resume_ids":[5]})";
  const auto data =
      data_of(worker.post("/v1/chat/completions", body + R"(,"stream":true})", kWithIds));
  ASSERT_EQ(data.size(), 3U);
  EXPECT_THAT(data[0], HasSubstr(R"("content":"end")"));
  const json::Value whole = json_of(worker.post("/v1/chat/completions", body + "}"));
  EXPECT_EQ(whole.at("choices").at(0).at("message").at("content"),
            (std::string(1000, 'x') + "end").c_str());
  EXPECT_EQ(whole.at("usage").at("completion_tokens"), 1001);
}

TEST(OpenAiResume, RefusesAndNames) {
  TestWorker worker;
  worker.backend.told = [](const TextRequest&) {
    return PrepareError{{ErrorCode::InvalidArgument, "llorch.resume_ids: not of this vocabulary"},
                        PrepareError::Blame::Told};
  };
  for (const char* rest :
       {R"("llorch":{"resume_ids":[1]})", R"("seed":1,"llorch":{"resume_ids":[[1],[2]]})",
        R"("seed":1,"n":2,"llorch":{"resume_ids":[1,2]})",
        R"("seed":1,"n":2,"llorch":{"resume_ids":[[1]]})",
        R"("seed":1,"llorch":{"resume_ids":[-1]})", R"("seed":1,"llorch":{"resume_ids":[["a"]]})",
        R"("seed":1,"llorch":{"resume_ids":{}})", R"("seed":1,"llorch":{"resume_ids":[99]})",
        R"("seed":1,"logprobs":1,"llorch":{"resume_ids":[1]})"}) {
    const std::string response =
        worker.post("/v1/completions", std::string(R"({"prompt":"p",)") + rest + "}");
    EXPECT_EQ(status_of(response), 400) << rest;
    EXPECT_EQ(json_of(response).at("error").at("param"), "llorch.resume_ids") << response;
  }
  const std::string unknown =
      worker.post("/v1/completions", R"({"prompt":"p","seed":1,"llorch":{"resume":[1]}})");
  EXPECT_EQ(json_of(unknown).at("error").at("param"), "llorch.resume");
  EXPECT_EQ(worker.backend.num_jobs(), 0U);
}

}  // namespace
}  // namespace llorch::worker_http
