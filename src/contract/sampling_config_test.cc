#include "contract/sampling_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace llorch::contract {
namespace {

struct Reading {
  SamplingConfig config;
  std::vector<json::FieldError> errors;
};

Reading read(std::string_view text) {
  const json::Value value = json::parse(text).take();
  json::FieldReader reader(value.get_object());
  Reading reading;
  reading.config = read_sampling(reader);
  reading.errors = reader.finish();
  return reading;
}

TEST(SamplingConfig, HasTheDefaultsOfTheContract) {
  const Reading reading = read("{}");
  EXPECT_TRUE(reading.errors.empty());
  EXPECT_EQ(reading.config, SamplingConfig());
  EXPECT_EQ(reading.config.temperature, 1.0F);
  EXPECT_EQ(reading.config.top_p, 1.0F);
  EXPECT_EQ(reading.config.min_p, 0.0F);
  EXPECT_EQ(reading.config.top_k, 0);
  EXPECT_EQ(reading.config.repetition_penalty, 1.0F);
  EXPECT_TRUE(reading.config.stop.empty());
  EXPECT_EQ(reading.config.seed, std::nullopt);
  EXPECT_EQ(reading.config.max_tokens, std::nullopt);
}

TEST(SamplingConfig, AcceptsTheEndsOfEveryRange) {
  for (const char* text :
       {R"({"temperature":0})", R"({"temperature":2})", R"({"top_p":0})", R"({"top_p":1})",
        R"({"min_p":0})", R"({"min_p":1.0})", R"({"top_k":0})", R"({"top_k":9223372036854775807})",
        R"({"repetition_penalty":0.001})", R"({"repetition_penalty":2})", R"({"stop":[]})",
        R"({"stop":["a","b","c","d"]})", R"({"seed":0})", R"({"seed":18446744073709551615})",
        R"({"max_tokens":1})", R"({"max_tokens":2147483647})", R"({"seed":null,"stop":null})"}) {
    EXPECT_TRUE(read(text).errors.empty()) << text;
  }
  EXPECT_TRUE(read(R"({"stop":[")" + std::string(100, 'x') + R"("]})").errors.empty());
}

TEST(SamplingConfig, RefusesWhatIsOutsideItsRange) {
  for (const char* text :
       {R"({"temperature":-0.1})", R"({"temperature":2.1})", R"({"top_p":1.01})", R"({"top_p":-1})",
        R"({"min_p":2})", R"({"top_k":-1})", R"({"top_k":1.5})", R"({"repetition_penalty":0})",
        R"({"repetition_penalty":2.5})", R"({"repetition_penalty":1e-60})",
        R"({"stop":["a","b","c","d","e"]})", R"({"stop":[""]})", R"({"stop":"a"})",
        R"({"seed":-1})", R"({"seed":0.5})", R"({"max_tokens":0})", R"({"max_tokens":2147483648})",
        R"({"temperature":"1"})"}) {
    EXPECT_EQ(read(text).errors.size(), 1U) << text;
  }
  EXPECT_EQ(read(R"({"stop":[")" + std::string(101, 'x') + R"("]})").errors.size(), 1U);
  // 50 characters of 3 bytes: the limit counts bytes.
  std::string euros;
  for (int i = 0; i < 50; ++i) euros += "\xe2\x82\xac";
  EXPECT_EQ(read(R"({"stop":[")" + euros + R"("]})").errors.size(), 1U);
}

TEST(SamplingConfig, RoundTripsThroughJson) {
  SamplingConfig config;
  config.temperature = 0.7F;
  config.top_p = 0.95F;
  config.min_p = 0.05F;
  config.top_k = 40;
  config.repetition_penalty = 1.1F;
  config.stop = {"\n\n", "\xe2\x82\xac"};
  config.seed = std::numeric_limits<std::uint64_t>::max();
  config.max_tokens = 12;
  json::Object object;
  write_sampling(config, object);
  const std::string text = json::serialize(object);
  EXPECT_EQ(text, R"({"max_tokens":12,"temperature":0.7,"top_p":0.95,"min_p":0.05,"top_k":40,)"
                  R"("repetition_penalty":1.1,"stop":["\n\n","€"],"seed":18446744073709551615})");
  const Reading back = read(text);
  EXPECT_TRUE(back.errors.empty());
  EXPECT_EQ(back.config, config);
}

TEST(SamplingConfig, LeavesAbsentSeedAndMaxTokensAbsent) {
  json::Object object;
  write_sampling(SamplingConfig(), object);
  EXPECT_FALSE(object.contains("seed"));
  EXPECT_FALSE(object.contains("max_tokens"));
  EXPECT_EQ(read(json::serialize(object)).config, SamplingConfig());
}

}  // namespace
}  // namespace llorch::contract
