// The bounds that the rest of the model trusts, each one step beyond it.
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "model/architectures/decoder.h"

namespace llorch::model {
namespace {

using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

ModelConfig good_config() {
  ModelConfig config;
  config.architecture = "llama";
  config.vocab_size = 96;
  config.context_length = 128;
  config.hidden_dim = 64;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.ffn_dim = 96;
  config.norm_epsilon = 1e-5F;
  config.ropes = {RopeConfig{.frequencies = std::vector<float>(8, 1.0F)}};
  attend_alike(config, 0);
  return config;
}

TEST(ModelConfig, WhatLiesOutsideTheBoundsIsRefusedByName) {
  struct Case {
    const char* error;
    void (*change)(ModelConfig&);
  };
  const Case cases[] = {
      {"vocabulary size is 4000001", [](ModelConfig& c) { c.vocab_size = 4'000'001; }},
      {"context length is 16777217", [](ModelConfig& c) { c.context_length = 16'777'217; }},
      {"embedding length is 0", [](ModelConfig& c) { c.hidden_dim = 0; }},
      {"layer count is 1001", [](ModelConfig& c) { c.num_layers = 1001; }},
      {"head count is 1025", [](ModelConfig& c) { c.num_heads = 1025; }},
      {"head dimension is 1025", [](ModelConfig& c) { c.head_dim = 1025; }},
      {"not a multiple of the key/value head count 3", [](ModelConfig& c) { c.num_kv_heads = 3; }},
      {"norm epsilon is 0", [](ModelConfig& c) { c.norm_epsilon = 0; }},
      {"norm epsilon is 0.2", [](ModelConfig& c) { c.norm_epsilon = 0.2F; }},
      {"norm epsilon is nan", [](ModelConfig& c) { c.norm_epsilon = kNan; }},
      {"embedding scale is -1", [](ModelConfig& c) { c.embedding_scale = -1; }},
      {"logit softcap is nan", [](ModelConfig& c) { c.logit_softcap = kNan; }},
      {"cover 18 of a head's 16", [](ModelConfig& c) { c.ropes[0].frequencies.resize(9); }},
      {"cover 0 of a head's 16", [](ModelConfig& c) { c.ropes[0].frequencies.clear(); }},
      {"rotary frequency is -1", [](ModelConfig& c) { c.ropes[0].frequencies[3] = -1; }},
      {"attention factor is 0", [](ModelConfig& c) { c.ropes[0].magnitude = 0; }},
      {"sliding window is -1", [](ModelConfig& c) { c.attention[1].window = -1; }},
  };
  EXPECT_TRUE(validate(good_config()).ok());
  for (const Case& wrong : cases) {
    ModelConfig config = good_config();
    wrong.change(config);
    const Status status = validate(config);
    EXPECT_THAT(status.ok() ? "accepted" : status.error().message, HasSubstr(wrong.error));
  }
}

TEST(ModelConfig, ActivationsByTheirNames) {
  using compute::Activation;
  for (const auto& [name, activation] :
       {std::pair{"gelu_new", Activation::GeluTanh},
        std::pair{"gelu_pytorch_tanh", Activation::GeluTanh},
        std::pair{"gelu_fast", Activation::GeluTanh}, std::pair{"gelu", Activation::GeluErf},
        std::pair{"relu", Activation::Relu}, std::pair{"silu", Activation::Silu},
        std::pair{"swish", Activation::Silu}}) {
    EXPECT_EQ(parse_activation("hidden_act", name).value(), activation) << name;
  }
  EXPECT_THAT(parse_activation("hidden_act", "mish").error().message, HasSubstr("'mish'"));
}

}  // namespace
}  // namespace llorch::model
