#include "engine/request_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace llorch::engine {
namespace {

constexpr RequestBounds kBounds = {
    .vocab_size = 100, .context_length = 64, .max_sequence_tokens = 48};

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

GenerationRequest valid() {
  GenerationRequest request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 4;
  return request;
}

TEST(CheckRequest, AcceptsWhatFits) {
  EXPECT_TRUE(check_request(valid(), kBounds).ok());
  GenerationRequest request = valid();
  request.prompt.assign(44, 99);
  request.sampling = {
      .temperature = 0, .top_k = 1LL << 40, .top_p = 0, .min_p = 1, .top_logprobs = 0};
  EXPECT_TRUE(check_request(request, kBounds).ok());
}

TEST(CheckRequest, SaysBothCountsWhenTheContextIsTooShort) {
  GenerationRequest request = valid();
  request.max_tokens = 62;
  const Status status = check_request(request, kBounds);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::InvalidArgument);
  EXPECT_THAT(status.error().message,
              testing::AllOf(testing::HasSubstr("3 tokens"), testing::HasSubstr("max_tokens is 62"),
                             testing::HasSubstr("64")));
  request.max_tokens = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(check_request(request, kBounds).error().code, ErrorCode::InvalidArgument);
}

TEST(CheckRequest, WhatCanNeverFitTheCacheIsOutOfMemory) {
  GenerationRequest request = valid();
  request.max_tokens = 46;
  EXPECT_EQ(check_request(request, kBounds).error().code, ErrorCode::OutOfMemory);
  request.max_tokens = 45;
  EXPECT_TRUE(check_request(request, kBounds).ok());
  EXPECT_EQ(
      check_request(EmbeddingRequest{.prompt = std::vector<TokenId>(49, 1)}, kBounds).error().code,
      ErrorCode::OutOfMemory);
  EXPECT_TRUE(check_request(EmbeddingRequest{.prompt = std::vector<TokenId>(48, 1)}, kBounds).ok());
}

TEST(CheckRequest, OnlyAScoredPromptMayGoWithoutOutput) {
  GenerationRequest request = valid();
  request.max_tokens = 0;
  request.score_prompt = true;
  request.sampling.top_logprobs = 0;
  EXPECT_TRUE(check_request(request, kBounds).ok());
  request.sampling.top_logprobs.reset();
  EXPECT_THAT(check_request(request, kBounds).error().message, testing::HasSubstr("top_logprobs"));
}

TEST(CheckRequest, RefusesWhatHasNoMeaning) {
  using Change = void (*)(GenerationRequest&);
  const std::vector<std::pair<const char*, Change>> cases = {
      {"no tokens", [](GenerationRequest& r) { r.prompt.clear(); }},
      {"max_tokens is 0", [](GenerationRequest& r) { r.max_tokens = 0; }},
      {"max_tokens is -5", [](GenerationRequest& r) { r.max_tokens = -5; }},
      {"id 100", [](GenerationRequest& r) { r.prompt[1] = 100; }},
      {"id -1", [](GenerationRequest& r) { r.prompt[2] = -1; }},
      {"temperature", [](GenerationRequest& r) { r.sampling.temperature = -0.1F; }},
      {"temperature", [](GenerationRequest& r) { r.sampling.temperature = kNan; }},
      {"top_p", [](GenerationRequest& r) { r.sampling.top_p = 1.1F; }},
      {"min_p", [](GenerationRequest& r) { r.sampling.min_p = kNan; }},
      {"top_k", [](GenerationRequest& r) { r.sampling.top_k = -1; }},
      {"repetition_penalty", [](GenerationRequest& r) { r.sampling.repetition_penalty = 0; }},
      {"frequency_penalty", [](GenerationRequest& r) { r.sampling.frequency_penalty = kNan; }},
      {"presence_penalty", [](GenerationRequest& r) { r.sampling.presence_penalty = kNan; }},
      {"top_logprobs", [](GenerationRequest& r) { r.sampling.top_logprobs = -1; }},
      {"names id 100",
       [](GenerationRequest& r) {
         r.sampling.logit_bias = {{100, 1.0F}};
       }},
      {"a logit_bias",
       [](GenerationRequest& r) {
         r.sampling.logit_bias = {{1, kNan}};
       }},
  };
  for (const auto& [text, change] : cases) {
    GenerationRequest request = valid();
    change(request);
    const Status status = check_request(request, kBounds);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.error().code, ErrorCode::InvalidArgument) << text;
    EXPECT_THAT(status.error().message, testing::HasSubstr(text));
  }
}

TEST(CheckRequest, WhatWasToldLeavesSomethingToMake) {
  GenerationRequest request;
  request.prompt = {1, 2};
  request.max_tokens = 3;
  request.told = {4, 5};
  const RequestBounds bounds{.vocab_size = 10, .context_length = 20, .max_sequence_tokens = 20};
  EXPECT_TRUE(check_request(request, bounds).ok());
  request.told = {4, 10};
  EXPECT_EQ(check_request(request, bounds).error().message,
            "token 1 of what was told has id 10: expected 0 to 9");
  request.told = {4, 5, 6};
  EXPECT_EQ(check_request(request, bounds).error().message,
            "3 tokens were told and max_tokens is 3: nothing is left to make");
}

}  // namespace
}  // namespace llorch::engine
