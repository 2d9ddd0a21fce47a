#include "contract/inference.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/error_table.h"
#include "contract/limits.h"

namespace llorch::contract {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

Result<InferenceRequest> parse(std::string_view body) {
  std::vector<json::FieldError> errors;
  return parse_inference_request(body, errors);
}

// "field | constraint" of every failure.
std::vector<std::string> failures_of(std::string_view body) {
  std::vector<json::FieldError> errors;
  const Result<InferenceRequest> request = parse_inference_request(body, errors);
  EXPECT_EQ(request.ok(), errors.empty());
  std::vector<std::string> texts;
  for (const json::FieldError& error : errors)
    texts.push_back(error.field + " | " + error.constraint);
  return texts;
}

std::string with_prompt(const std::string& prompt) {
  return json::serialize(json::Object{{"job_id", "j"}, {"prompt", prompt}});
}

TEST(InferenceRequest, NeedsOnlyJobIdAndPrompt) {
  const Result<InferenceRequest> request = parse(R"({"job_id":"job-1","prompt":"Hello"})");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(*request, (InferenceRequest{"job-1", "Hello", SamplingConfig()}));
}

TEST(InferenceRequest, RoundTripsThroughJson) {
  InferenceRequest request{"a.B_c-9", "caf\xc3\xa9 \xf0\x9f\x98\x80 \"q\"\n", {}};
  request.sampling.temperature = 0.3F;
  request.sampling.stop = {"###"};
  request.sampling.seed = 7;
  request.sampling.max_tokens = 16;
  const Result<InferenceRequest> back = parse(json::serialize(to_json(request)));
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, request);
}

TEST(InferenceRequest, TakesIdsInsteadOfThePromptAndWhatWasSaidElsewhere) {
  const Result<InferenceRequest> request =
      parse(R"({"job_id":"j","prompt_ids":[1,0,7],"seed":4,"resume":{"ids":[5,6]}})");
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_THAT(request->prompt_ids.value(), ElementsAre(1, 0, 7));
  EXPECT_THAT(request->resume_ids.value(), ElementsAre(5, 6));
  const std::string text = json::serialize(to_json(*request));
  EXPECT_THAT(text, HasSubstr(R"("prompt_ids":[1,0,7])"));
  EXPECT_THAT(text, Not(HasSubstr("\"prompt\"")));
  const Result<InferenceRequest> back = parse(text);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, *request);
  EXPECT_THAT(parse(R"({"job_id":"j","prompt":"p","seed":4,"resume":{"ids":[]}})")->resume_ids,
              testing::Optional(testing::IsEmpty()));
}

TEST(InferenceRequest, SaysWhatIsWrongWithIds) {
  EXPECT_THAT(failures_of(R"({"job_id":"j","prompt":"p","prompt_ids":[1]})"),
              ElementsAre("prompt_ids | not with prompt"));
  EXPECT_THAT(failures_of(R"({"job_id":"j","prompt_ids":[]})"),
              ElementsAre("prompt_ids | at least 1 id"));
  for (const char* ids : {"[-1]", "[1.5]", "[\"1\"]", "[2147483648]", "[[1]]"}) {
    EXPECT_THAT(failures_of(fmt::format(R"({{"job_id":"j","prompt_ids":{}}})", ids)),
                ElementsAre("prompt_ids | token ids"))
        << ids;
    EXPECT_THAT(failures_of(fmt::format(
                    R"({{"job_id":"j","prompt":"p","seed":1,"resume":{{"ids":{}}}}})", ids)),
                ElementsAre("resume.ids | token ids"))
        << ids;
  }
  EXPECT_THAT(failures_of(R"({"job_id":"j","prompt":"p","resume":{"ids":[1]}})"),
              ElementsAre("seed | required with resume"));
  EXPECT_THAT(failures_of(R"({"job_id":"j","prompt":"p","seed":1,"resume":{"id":[1]}})"),
              testing::UnorderedElementsAre("resume.ids | required", "resume.id | known field"));
  EXPECT_THAT(failures_of(R"({"job_id":"j","prompt":"p","seed":1,"resume":{"ids":null}})"),
              ElementsAre("resume.ids | required"));
  std::vector<json::FieldError> errors;
  EXPECT_FALSE(
      parse_inference_request(R"({"job_id":"j","prompt_ids":[1099511627776]})", errors).ok());
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].message, "must hold token ids only: integers from 0 to 2147483647");
  EXPECT_THAT(failures_of(R"({"job_id":"j","prompt":"p","seed":1,"resume":[1]})"),
              ElementsAre("resume | object"));
}

TEST(InferenceRequest, NamesEveryFailureAtOnce) {
  EXPECT_THAT(
      failures_of(
          R"({"job_id":"a b","prompt":"","max_tokens":0,"temperature":3,"top_p":2,"min_p":-1,"top_k":-1,)"
          R"("repetition_penalty":0,"stop":["ok",""],"seed":-1,"max_token":5,"streem":true})"),
      ElementsAre("job_id | [A-Za-z0-9._-]", "prompt | 1..131072 characters",
                  "max_tokens | 1..2147483647", "temperature | 0..2", "top_p | 0..1",
                  "min_p | 0..1", "top_k | >= 0", "repetition_penalty | > 0 and <= 2",
                  "stop[1] | 1..100 bytes", "seed | 0..2^64-1", "max_token | known field",
                  "streem | known field"));
  EXPECT_THAT(failures_of("{}"), ElementsAre("job_id | required", "prompt | required"));
  EXPECT_THAT(failures_of(R"({"job_id":1,"prompt":[]})"),
              ElementsAre("job_id | string", "prompt | string"));
}

TEST(InferenceRequest, RefusesABodyThatIsNoObject) {
  for (const char* body :
       {"", "[]", "null", "\"x\"", "{", "{\"job_id\":\"j\",\"prompt\":\"p\"} x",
        R"({"job_id":"j","prompt":"p","temperature":NaN})",
        R"({"job_id":"j","prompt":"p","temperature":1e999})",
        R"({"job_id":"j","prompt":"p","prompt":"q"})", "{\"prompt\":\"\xff\"}"}) {
    EXPECT_THAT(failures_of(body), ElementsAre("request | JSON object")) << body;
    EXPECT_EQ(parse(body).error().code, ErrorCode::InvalidArgument);
  }
}

TEST(InferenceRequest, RefusesABodyAboveTheLimitAsTooLarge) {
  const std::string body = with_prompt("p") + std::string(kRequestBodyBytesMax, ' ');
  EXPECT_EQ(parse(body).error().code, ErrorCode::TooLarge);
}

TEST(InferenceRequest, CountsThePromptInScalarValues) {
  std::string prompt;
  for (std::size_t i = 0; i < kPromptScalarsMax; ++i) prompt += "\xf0\x9f\x98\x80";
  EXPECT_TRUE(parse(with_prompt(prompt)).ok());
  EXPECT_THAT(failures_of(with_prompt(prompt + "a")), ElementsAre("prompt | 1..131072 characters"));
  // The longest legal prompt in its longest spelling still passes the bound on the body.
  std::string escaped;
  for (std::size_t i = 0; i < kPromptScalarsMax; ++i) escaped += "\\ud83d\\ude00";
  const Result<InferenceRequest> request = parse(R"({"job_id":"j","prompt":")" + escaped + "\"}");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->prompt, prompt);
}

TEST(InferenceRequest, BoundsTheJobId) {
  EXPECT_TRUE(is_valid_job_id("AZaz09._-"));
  EXPECT_TRUE(is_valid_job_id(std::string(256, 'a')));
  for (const std::string& text :
       {std::string(), std::string(257, 'a'), std::string("a/b"), std::string("a b"),
        std::string("\xc3\xa9"), std::string("a\0b", 3), std::string("a;b")}) {
    EXPECT_FALSE(is_valid_job_id(text)) << text;
  }
  EXPECT_THAT(failures_of(R"({"prompt":"p","job_id":""})"), ElementsAre("job_id | 1..256 bytes"));
}

TEST(InferenceRequest, ShowsNumbersButNeverTextOfPromptOrStop) {
  std::vector<json::FieldError> errors;
  const Result<InferenceRequest> request = parse_inference_request(
      R"({"job_id":"secret id","prompt":12345,"temperature":9.5,"stop":[true,"secret stop","a","b","c"]})",
      errors);
  ASSERT_FALSE(request.ok());
  const std::string body = render_error(request.error(), "corr", errors).body;
  EXPECT_THAT(body, HasSubstr("9.5"));
  EXPECT_THAT(body, Not(HasSubstr("secret")));
  EXPECT_THAT(body, Not(HasSubstr("12345")));
  for (const json::FieldError& error : errors)
    EXPECT_EQ(error.value.has_value(), error.field == "temperature");
  // Fewer strings than the limit: the entries themselves are looked at, and not shown either.
  (void)parse_inference_request(R"({"job_id":"j","prompt":false,"stop":[true]})", errors);
  ASSERT_EQ(errors.size(), 2U);
  EXPECT_FALSE(errors[0].value || errors[1].value);
}

TEST(InferenceRequest, BoundsTheNumberOfFailuresItLists) {
  std::string body = R"({"job_id":"j","prompt":"p")";
  for (int i = 0; i < 1000; ++i) body += fmt::format(R"(,"x{}":1)", i);
  std::vector<json::FieldError> errors;
  const Result<InferenceRequest> request = parse_inference_request(body + "}", errors);
  ASSERT_FALSE(request.ok());
  ASSERT_EQ(errors.size(), kFieldErrorsMax);
  EXPECT_EQ(errors.back().message, "937 more failures are not listed");
  EXPECT_TRUE(request.error().message.starts_with("the request has at least 64 failures: x0, "))
      << request.error().message;
}

TEST(InferenceRequest, SaysOneFailureInFullAndSeveralByName) {
  EXPECT_EQ(parse(R"({"job_id":"j","prompt":"p","temperature":3})").error().message,
            "temperature must be in 0..2, is 3");
  EXPECT_EQ(parse("{}").error().message, "the request has 2 failures: job_id, prompt");
}

TEST(StopReason, HasTheNamesOfTheContract) {
  for (const auto& [reason, text] : {std::pair{StopReason::MaxTokens, "max_tokens"},
                                     {StopReason::Eos, "eos"},
                                     {StopReason::StopSequence, "stop_sequence"},
                                     {StopReason::Cancelled, "cancelled"}}) {
    EXPECT_EQ(name(reason), text);
  }
}

TEST(StartedEvent, RoundTripsThroughJson) {
  const StartedEvent event{"job-1", "gpt2", "2025-10-09T12:00:00Z", 18446744073709551615U, 12,
                           8,       0.125};
  const std::string text = json::serialize(started_event_json(event));
  EXPECT_EQ(
      text,
      R"({"job_id":"job-1","model":"gpt2","started_at":"2025-10-09T12:00:00Z","seed":18446744073709551615,)"
      R"("prompt_tokens":12,"cached_tokens":8,"queue_ms":0.125})");
  ASSERT_TRUE(parse_started_event(text).ok());
  EXPECT_EQ(parse_started_event(text).value(), event);
}

TEST(TokenEvent, RoundTripsThroughJson) {
  const TokenEvent event{" caf\xc3\xa9\n", 3};
  const std::string text = json::serialize(token_event_json(event));
  EXPECT_EQ(text, "{\"t\":\" caf\xc3\xa9\\n\",\"i\":3}");
  ASSERT_TRUE(parse_token_event(text).ok());
  EXPECT_EQ(parse_token_event(text).value(), event);
}

TEST(TokenEvent, HasItsIdsLast) {
  const TokenEvent event{"x\"", 3, {7453, 12}};
  const std::string text = json::serialize(token_event_json(event));
  EXPECT_EQ(text, R"({"t":"x\"","i":3,"ids":[7453,12]})");
  ASSERT_TRUE(parse_token_event(text).ok());
  EXPECT_EQ(parse_token_event(text).value(), event);
  EXPECT_FALSE(parse_token_event(R"({"t":"x","i":3,"ids":[-1]})").ok());
}

TEST(InferenceResult, RoundTripsThroughTheEndEvent) {
  InferenceResult result;
  result.tokens_out = 5;
  result.decode_time_ms = 120;
  result.stop_reason = StopReason::StopSequence;
  result.stop_sequence_matched = "###";
  result.prompt_tokens = 9;
  result.prefill_ms = 3.25;
  result.ttft_ms = 4.5;
  result.seed = 42;
  const std::string text = json::serialize(end_event_json(result));
  EXPECT_EQ(
      text,
      R"({"tokens_out":5,"decode_time_ms":120,"stop_reason":"stop_sequence","stop_sequence_matched":"###",)"
      R"("prompt_tokens":9,"prefill_ms":3.25,"ttft_ms":4.5,"seed":42})");
  ASSERT_TRUE(parse_end_event(text).ok());
  EXPECT_EQ(parse_end_event(text).value(), result);

  result.ids = {2, 3};
  const std::string with_ids = json::serialize(end_event_json(result));
  EXPECT_THAT(with_ids, testing::EndsWith(R"("seed":42,"ids":[2,3]})"));
  EXPECT_EQ(parse_end_event(with_ids).value(), result);
}

TEST(InferenceResult, WritesNoStopSequenceAsNullAndTimesToTheMicrosecond) {
  InferenceResult result;
  result.stop_reason = StopReason::Eos;
  result.ttft_ms = 1.0 / 3;
  const json::Object object = end_event_json(result);
  EXPECT_TRUE(object.at("stop_sequence_matched").is_null());
  EXPECT_EQ(object.at("ttft_ms").get_double(), 0.333);
}

TEST(Events, AcceptFieldsOfANewerPeerAndMissingExtras) {
  const Result<InferenceResult> result = parse_end_event(
      R"({"tokens_out":1,"decode_time_ms":2,"stop_reason":"eos","energy_joules":3.5})");
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->stop_reason, StopReason::Eos);
  EXPECT_EQ(result->stop_sequence_matched, std::nullopt);
  EXPECT_TRUE(parse_started_event(R"({"job_id":"j","model":"m","started_at":"t"})").ok());
}

TEST(Events, RefuseWhatBreaksTheContract) {
  for (const char* text :
       {"", "[]", "{}", R"({"t":"x"})", R"({"t":1,"i":0})", R"({"t":"x","i":-1})"}) {
    const Result<TokenEvent> event = parse_token_event(text);
    ASSERT_FALSE(event.ok()) << text;
    EXPECT_EQ(event.error().code, ErrorCode::Internal);
    EXPECT_THAT(event.error().message, HasSubstr("malformed token event"));
  }
  EXPECT_THAT(parse_end_event(R"({"tokens_out":1,"decode_time_ms":2,"stop_reason":"bored"})")
                  .error()
                  .message,
              HasSubstr("stop_reason is unknown: \"bored\""));
  EXPECT_FALSE(parse_end_event(R"({"tokens_out":-1,"decode_time_ms":2,"stop_reason":"eos"})").ok());
  EXPECT_FALSE(parse_started_event(R"({"job_id":"j","model":"m"})").ok());
}

}  // namespace
}  // namespace llorch::contract
