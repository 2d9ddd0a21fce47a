// Frequencies for every kind of scaling, as config.json states it in the old and the new spelling,
// against transformers; and what GGUF files say instead.
#include "model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "formats/json_metadata.h"
#include "model/architectures/decoder.h"
#include "support/test_paths.h"

namespace llorch::model {
namespace {

using compute::RopeStyle;
using testing::HasSubstr;

std::int32_t int_at(const json::Object& object, const char* key, std::int32_t fallback) {
  return object.contains(key) ? static_cast<std::int32_t>(object.at(key).as_int64()) : fallback;
}

TEST(Rope, FrequenciesAreThoseOfTransformers) {
  const json::Value cases =
      json::parse(
          base::read_text_file(test::source_path("tests/golden/rope_frequencies.json"), 1 << 24)
              .take())
          .take();
  ASSERT_GE(cases.as_array().size(), 20U);
  for (const json::Value& entry : cases.as_array()) {
    const json::Object& fields = entry.as_object().at("config").as_object();
    const std::string name(json::view(entry.as_object().at("name").as_string()));
    formats::WeightFile file(formats::FileFormat::SafeTensors, name);
    ASSERT_TRUE(
        formats::add_json_metadata(json::serialize(fields), "config", file.mutable_metadata())
            .ok());
    ModelConfig config;
    config.context_length = int_at(fields, "max_position_embeddings", 0);
    config.head_dim = int_at(fields, "head_dim", 64);
    const bool phi3 = fields.at("model_type") == "phi3";
    const Result<RopeConfig> rope = read_rope(
        file, config,
        {.may_be_partial = phi3,
         .yarn_is_longrope = phi3,
         .context_wanted = static_cast<std::int32_t>(entry.as_object().at("context").as_int64())});
    ASSERT_TRUE(rope.ok()) << name << ": " << rope.error().message;
    EXPECT_EQ(rope->style, RopeStyle::Half);
    EXPECT_NEAR(rope->magnitude, entry.as_object().at("magnitude").to_number<double>(), 1e-6)
        << name;
    const json::Array& expected = entry.as_object().at("frequencies").as_array();
    ASSERT_EQ(rope->frequencies.size(), expected.size()) << name;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto value = expected[i].to_number<double>();
      EXPECT_NEAR(rope->frequencies[i], value, 2e-6 * value) << name << " " << i;
    }
  }
}

// GGUF: the keys of llama.cpp. The formulas are those above, so only the reading is at stake.
TEST(Rope, GgufKeysMeanTheSame) {
  const auto read = [](auto&& fill, bool local = false) {
    formats::WeightFile file(formats::FileFormat::Gguf, "x");
    formats::Metadata& metadata = file.mutable_metadata();
    EXPECT_TRUE(metadata.add("general.architecture", std::string("llama")).ok());
    fill([&metadata](const std::string& key, formats::Value value) {
      EXPECT_TRUE(metadata.add("llama.rope." + key, std::move(value)).ok());
    });
    ModelConfig config;
    config.context_length = 8192;
    config.head_dim = 64;
    return read_rope(file, config, {.local_theta = local ? 500.0 : 0.0});
  };
  RopeParameters rope{.theta = 500000, .rotary_dim = 64};
  const auto expect_same = [&](const Result<RopeConfig>& ours) {
    ASSERT_TRUE(ours.ok()) << ours.error().message;
    const RopeConfig expected = make_rope(rope, RopeStyle::Adjacent).take();
    EXPECT_EQ(ours->style, RopeStyle::Adjacent);
    EXPECT_EQ(ours->frequencies, expected.frequencies);
    EXPECT_FLOAT_EQ(ours->magnitude, expected.magnitude);
  };
  expect_same(read([](auto&& add) {
    add("freq_base", 500000.0);
    add("dimension_count", std::uint64_t{64});
  }));
  rope.scaling = RopeScaling::Linear;
  rope.factor = 4;
  expect_same(read([](auto&& add) {
    add("freq_base", 500000.0);
    add("scaling.type", std::string("linear"));
    add("scaling.factor", 4.0);
  }));
  rope.scaling = RopeScaling::Yarn;
  rope.original_context = 2048;
  expect_same(read([](auto&& add) {
    add("freq_base", 500000.0);
    add("scaling.type", std::string("yarn"));
    add("scaling.factor", 4.0);
    add("scaling.original_context_length", std::uint64_t{2048});
  }));
  rope.attention_factor = 0.5 * (1 + 0.1 * std::log(4.0));
  expect_same(read([](auto&& add) {
    add("freq_base", 500000.0);
    add("scaling.type", std::string("yarn"));
    add("scaling.factor", 4.0);
    add("scaling.attn_factor", 0.5);
    add("scaling.original_context_length", std::uint64_t{2048});
  }));
  rope.attention_factor.reset();
  rope.beta_fast = 16;
  rope.beta_slow = 2;
  rope.truncate = false;
  expect_same(read([](auto&& add) {
    add("freq_base", 500000.0);
    add("scaling.type", std::string("yarn"));
    add("scaling.factor", 4.0);
    add("scaling.original_context_length", std::uint64_t{2048});
    add("scaling.yarn_beta_fast", 16.0);
    add("scaling.yarn_beta_slow", 2.0);
    add("scaling.yarn_truncate", false);
  }));
  rope = {.theta = 500, .rotary_dim = 64};
  expect_same(read([](auto&& add) { add("freq_base", 500000.0); }, /*local=*/true));
  const auto error = [&](std::string key, formats::Value value) {
    const Result<RopeConfig> ours = read([&](auto&& add) {
      if (key != "scaling.type") add("scaling.type", std::string("yarn"));
      add(key, value);
    });
    return ours.ok() ? "accepted" : ours.error().message;
  };
  EXPECT_THAT(error("scaling.type", std::string("longrope")), HasSubstr("rope_factors_long"));
  EXPECT_THAT(error("scaling.type", std::string("ntk")), HasSubstr("\"ntk\" is not supported"));
  EXPECT_THAT(error("scaling.yarn_log_multiplier", 0.1), HasSubstr("yarn_log_multiplier"));
  EXPECT_THAT(error("scaling.yarn_ext_factor", 0.5), HasSubstr("yarn_ext_factor = 0.5"));
  EXPECT_THAT(error("scaling.yarn_attn_factor", 2.0), HasSubstr("yarn_attn_factor = 2"));
  EXPECT_THAT(error("scaling.factor", -2.0), HasSubstr("factor is -2"));
  EXPECT_THAT(error("dimension_count", std::uint64_t{32}), HasSubstr("dimension_count = 32"));
}

// YaRN's ramp ends within the head: from pair 2 to pair 7 here, where its formula says 2 to 9; and
// a ramp without length is a step.
TEST(Rope, YarnsRampStaysWithinTheHead) {
  RopeParameters rope{.rotary_dim = 8, .scaling = RopeScaling::Yarn, .factor = 4};
  rope.original_context = 3000;
  rope.beta_fast = 1;
  rope.beta_slow = 1e-6;
  EXPECT_FLOAT_EQ(make_rope(rope, RopeStyle::Half)->frequencies[3], 0.00085F);
  rope.beta_fast = rope.beta_slow = 8;
  rope.truncate = false;
  const std::vector<float> step = make_rope(rope, RopeStyle::Half)->frequencies;
  EXPECT_FLOAT_EQ(step[0], 1);
  EXPECT_FLOAT_EQ(step[3], 0.001F / 4);
  // Both ends before the first pair: it is kept, and all others are stretched.
  rope.original_context = 3;
  rope.beta_fast = 32;
  rope.beta_slow = 1;
  rope.truncate = true;
  const std::vector<float> first = make_rope(rope, RopeStyle::Half)->frequencies;
  EXPECT_FLOAT_EQ(first[0], 1);
  EXPECT_FLOAT_EQ(first[1], 0.1F / 4);
}

// More context than the model has is not given, so it does not choose the long factors either.
TEST(Rope, LongFactorsFollowTheContextThatIsGiven) {
  formats::WeightFile file(formats::FileFormat::SafeTensors, "x");
  ASSERT_TRUE(formats::add_json_metadata(
                  R"({"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor":
                  [1, 1], "long_factor": [2, 2], "original_max_position_embeddings": 32}})",
                  "config", file.mutable_metadata())
                  .ok());
  ModelConfig config;
  config.context_length = 32;
  config.head_dim = 4;
  const Result<RopeConfig> rope = read_rope(file, config, {.context_wanted = 64});
  ASSERT_TRUE(rope.ok()) << rope.error().message;
  EXPECT_EQ(rope->recipe.long_factors, false);
}

TEST(Rope, NumbersThatMakeNoSenseAreErrors) {
  const auto error = [](const RopeParameters& rope) {
    const Result<RopeConfig> made = make_rope(rope, RopeStyle::Half);
    return made.ok() ? "accepted" : made.error().message;
  };
  EXPECT_EQ(error({.rotary_dim = 8}), "accepted");
  EXPECT_THAT(error({.rotary_dim = 7}), HasSubstr("7 values of a head"));
  EXPECT_THAT(error({.rotary_dim = 0}), HasSubstr("0 values of a head"));
  EXPECT_THAT(error({.rotary_dim = 1026}), HasSubstr("1026 values of a head"));
  EXPECT_THAT(error({.theta = std::nan(""), .rotary_dim = 8}), HasSubstr("rope theta"));
  EXPECT_THAT(error({.theta = 1, .rotary_dim = 8}), HasSubstr("rope theta is 1"));
  EXPECT_THAT(error({.rotary_dim = 8, .scaling = RopeScaling::Linear, .factor = 0}),
              HasSubstr("factor is 0"));
  EXPECT_THAT(error({.rotary_dim = 8, .scaling = RopeScaling::Yarn}),
              HasSubstr("original context is 0"));
  EXPECT_THAT(error({.rotary_dim = 8,
                     .scaling = RopeScaling::Llama3,
                     .original_context = 64,
                     .low_freq_factor = 4,
                     .high_freq_factor = 4}),
              HasSubstr("high_freq_factor is 4"));
  EXPECT_THAT(error({.rotary_dim = 8, .divisors = {1, 2, 3}}), HasSubstr("3 rope factors"));
  EXPECT_THAT(error({.rotary_dim = 8, .divisors = {1, 2, 3, 0}}), HasSubstr("factor is 0"));
}

}  // namespace
}  // namespace llorch::model
