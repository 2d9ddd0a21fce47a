// The families after GPT-2: what each is told apart by is noticed when it is missing, and what
// we do not do is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "formats/test_safetensors.h"
#include "model/breakable_model.h"
#include "model/rope.h"
#include "tensor/half.h"

namespace llorch::model {
namespace {

using compute::RopeStyle;
using tensor::DType;
using testing::HasSubstr;

// --- Negative: the rung that notices, and for rotations that the projection before it did not. ---

struct Breakage {
  std::string_view name;
  std::string_view golden;
  int rung;
  void (*change)(BreakableModel& model);
};

const Breakage kBreakages[] = {
    {"LlamaRotatesNeighbours", "families/llama", 4,
     [](BreakableModel& m) { m.plan().config.ropes[0].style = RopeStyle::Adjacent; }},
    {"LlamaWithoutItsScaling", "families/llama", 4,
     [](BreakableModel& m) { m.plan().config.ropes[0].frequencies = unscaled(8, 10000); }},
    {"LlamaWithoutRotation", "families/llama", 4,
     [](BreakableModel& m) { m.plan().config.attention.clear(); }},
    {"LlamaWithGelu", "families/llama", 6,
     [](BreakableModel& m) { m.plan().config.activation = compute::Activation::GeluTanh; }},
    {"LlamaWithLayerNorm", "families/llama", 1,
     [](BreakableModel& m) { m.plan().config.norm = NormKind::LayerNorm; }},
    {"MistralWithoutItsWindow", "families/mistral", 4,
     [](BreakableModel& m) {
       for (LayerAttention& layer : m.plan().config.attention) layer.window = 0;
     }},
    {"MistralWithAWindowOneShort", "families/mistral", 4,
     [](BreakableModel& m) {
       for (LayerAttention& layer : m.plan().config.attention) --layer.window;
     }},
    {"Qwen2WithoutBias", "families/qwen2", 2,
     [](BreakableModel& m) {
       std::erase_if(m.plan().tensors,
                     [](const MappedTensor& t) { return t.spec.role == Role::QkvBias; });
     }},
    {"Qwen2WithTheUsualTheta", "families/qwen2", 4,
     [](BreakableModel& m) { m.plan().config.ropes[0].frequencies = unscaled(8, 10000); }},
    {"Qwen3WithoutQkNorm", "families/qwen3", 4,
     [](BreakableModel& m) { m.plan().config.qk_norm = false; }},
    {"Qwen3NormsSwapped", "families/qwen3", 4,
     [](BreakableModel& m) {
       std::swap(m.mapped(Role::QNormWeight, 0).tensor, m.mapped(Role::KNormWeight, 0).tensor);
     }},
    {"Phi3RotatesTheWholeHead", "families/phi3", 4,
     [](BreakableModel& m) { m.plan().config.ropes[0].frequencies = unscaled(8, 10000); }},
    {"Phi3GateAndUpSwapped", "families/phi3", 6,
     [](BreakableModel& m) {
       m.edit(Role::FfnIn, 0, [](std::vector<float>& values) {
         const auto half = static_cast<std::ptrdiff_t>(values.size() / 2);
         std::rotate(values.begin(), values.begin() + half, values.end());
       });
     }},
    {"Phi3LongWithoutFactors", "families/phi3_long", 4,
     [](BreakableModel& m) { m.plan().config.ropes[0].frequencies = unscaled(8, 10000); }},
    {"Phi3LongWithoutAttentionFactor", "families/phi3_long", 4,
     [](BreakableModel& m) { m.plan().config.ropes[0].magnitude = 1; }},
    {"Gemma2WithoutAttentionCap", "families/gemma2", 4,
     [](BreakableModel& m) { m.plan().config.attention_softcap = 0; }},
    {"Gemma2WithTheUsualScale", "families/gemma2", 4,
     [](BreakableModel& m) { m.plan().config.attention_scale = 0; }},
    {"Gemma2WithoutLogitCap", "families/gemma2", 8,
     [](BreakableModel& m) { m.plan().config.logit_softcap = 0; }},
    {"Gemma2WithoutPostNorms", "families/gemma2", 5,
     [](BreakableModel& m) { m.plan().config.post_norms = false; }},
    {"Gemma2WithoutEmbeddingScale", "families/gemma2", 7,
     [](BreakableModel& m) { m.plan().config.embedding_scale = 1; }},
    {"Gemma2NormsNotPlusOne", "families/gemma2", 1,
     [](BreakableModel& m) { m.mapped(Role::AttnNormWeight, 0).spec.plus_one = false; }},
    {"Gemma2EveryLayerSlides", "families/gemma2", 8,
     [](BreakableModel& m) { m.plan().config.attention[1].window = 11; }},
    {"Gemma3OneRotationForAll", "families/gemma3", 4,
     [](BreakableModel& m) {
       for (LayerAttention& layer : m.plan().config.attention) layer.rope = 0;
     }},
    {"Gemma3GlobalLayerTurnsLocally", "families/gemma3", 8,
     [](BreakableModel& m) { m.plan().config.attention[1].rope = 1; }},
    {"Gemma3WithoutQkNorm", "families/gemma3", 4,
     [](BreakableModel& m) { m.plan().config.qk_norm = false; }},
};

class FamilyNegative : public testing::TestWithParam<Breakage> {};

TEST_P(FamilyNegative, IsNoticed) {
  BreakableModel model(GetParam().golden);
  GetParam().change(model);
  const Trace ours = model.record();
  model.expect_fails(GetParam().rung, ours);
  if (GetParam().rung == 4) {
    EXPECT_TRUE(compare(ours, model.reference())[1].passed) << "the projection itself was right";
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyNegative, testing::ValuesIn(kBreakages),
                         [](const auto& test) { return std::string(test.param.name); });

// --- LongRoPE: one choice for the whole life of a model. ---

TEST(Phi3, AContextWithinTheOriginalUsesTheShortFactors) {
  const formats::WeightFile golden =
      formats::read_safetensors(
          test::source_path("tests/golden/families/phi3_long/golden_short.safetensors"))
          .take();
  const std::vector<std::int32_t> ids = values_of<std::int32_t>(*golden.find("ids"));
  const std::vector<float> expected = values_of<float>(*golden.find("logits"));
  const auto backend = test_backend("cpu");
  const std::filesystem::path folder = test::source_path("tests/golden/families/phi3_long");
  const auto worst_with = [&](const PlanOptions& options) {
    const auto model = load_model(folder, *backend, options).take();
    const std::vector<float> ours =
        record_trace(model, *backend, ids, 0).take().tensors.at("logits").values;
    CHECK(ours.size() == expected.size());
    double worst = 0;
    for (std::size_t i = 0; i < ours.size(); ++i)
      worst = std::max(worst, std::abs(double{ours[i]} - expected[i]));
    return worst;
  };
  EXPECT_LT(worst_with({.context_length = 32}), 1e-3);
  EXPECT_GT(worst_with({.context_length = 33}), 0.1);
  EXPECT_GT(worst_with({}), 0.1);
  const auto told = [&](std::int32_t context) {
    const ModelConfig config =
        load_model(folder, *backend, {.context_length = context}).take()->config;
    return describe_scaling(config.ropes[0], config.context_length);
  };
  EXPECT_EQ(told(32),
            "LongRoPE: the short factors, because the context of 32 is within the original 32");
  EXPECT_EQ(told(33),
            "LongRoPE: the long factors, because the context of 33 is above the original 32");
  EXPECT_EQ(load_model(folder, *backend, {.context_length = 32}).take()->config.context_length, 32);
  EXPECT_EQ(load_model(folder, *backend, {.context_length = 9999}).take()->config.context_length,
            100);
}

// --- Sources. ---

TEST(Family, PyTorchAndSafeTensorsGiveTheSameBits) {
  const auto backend = test_backend("cpu");
  for (const char* name : {"llama", "qwen2"}) {
    const std::string folder = fmt::format("tests/golden/families/{}", name);
    const std::vector<std::int32_t> ids = Golden(fmt::format("families/{}", name)).ids("ids");
    const auto logits = [&](const std::string& path) {
      return record_trace(load_golden_model(path, *backend), *backend, ids, 0)
          .take()
          .tensors.at("logits")
          .values;
    };
    EXPECT_EQ(logits(folder), logits(folder + "/pytorch")) << name;
  }
}

// Weights saved without the head, whose names lack "model.", and old files' rotary tables.
TEST(Family, NamesWithoutPrefixAndRotaryTablesAreUnderstood) {
  const test::TempDir dir;
  const formats::WeightFile source =
      formats::open_weights(test::source_path("tests/golden/families/qwen2")).take();
  std::vector<formats::WeightTensor> tensors(source.tensors().begin(), source.tensors().end());
  for (formats::WeightTensor& tensor : tensors)
    tensor.name = tensor.name.substr(std::string("model.").size());
  const std::vector<float> table(8, 1.0F);
  tensors.push_back({.name = "layers.0.self_attn.rotary_emb.inv_freq",
                     .dtype = DType::F32,
                     .shape = {8},
                     .bytes = std::as_bytes(std::span(table)),
                     .strides = {}});
  formats::write_safetensors(dir / "model.safetensors", tensors);
  std::filesystem::copy_file(test::source_path("tests/golden/families/qwen2/config.json"),
                             dir / "config.json");
  const formats::WeightFile bare = formats::open_weights(dir.path()).take();
  const Result<ModelPlan> plan = plan_model(bare);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(count_parameters(plan.value()), count_parameters(plan_model(source).take()));
}

// --- What is refused, by name. ---

struct Refusal {
  std::string_view family;
  std::string_view key;
  std::string_view value;  // JSON
  std::string_view error;
};

const Refusal kRefusals[] = {
    {"llama", "hidden_act", R"("swiglu")", "hidden_act 'swiglu' is not supported"},
    {"llama", "mlp_bias", "true", "missing model.layers.0.mlp.gate_proj.bias [96]"},
    {"llama", "attention_bias", "true", "missing model.layers.0.self_attn.o_proj.bias [64]"},
    {"llama", "attention_bias", "7", "attention_bias"},
    {"llama", "is_causal", "false", "is_causal = false is not supported"},
    {"llama", "rope_interleaved", "true", "rope_interleaved = true is not supported"},
    {"llama", "num_local_experts", "8", "num_local_experts = 8: mixtures of experts"},
    {"llama", "partial_rotary_factor", "0.5", "partial_rotary_factor = 0.5 is not supported"},
    {"llama", "rope_parameters", R"({"rope_type": "dynamic", "factor": 2.0})",
     "rope_type \"dynamic\" is not supported; known: default, linear, llama3, yarn, longrope"},
    {"llama", "rope_parameters", R"({"rope_type": "linear"})", "rope_parameters.factor is missing"},
    {"llama", "rope_parameters", R"({"rope_theta": -3.0})", "rope theta is -3"},
    {"llama", "quantization_config", R"({"quant_method": "gptq"})", "quantization_config"},
    {"llama", "tie_word_embeddings", "true", "accepted"},
    {"llama", "head_dim", "15", "15"},
    {"llama", "num_key_value_heads", "3", "not a multiple of the key/value head count 3"},
    {"llama", "num_hidden_layers", "3", "missing model.layers.2.input_layernorm.weight"},
    {"llama", "num_hidden_layers", "1", "unknown model.layers.1."},
    {"llama", "hidden_size", "2000000000", "2000000000"},
    {"llama", "rms_norm_eps", "-1.0", "epsilon"},
    {"mistral", "sliding_window", "null", "accepted"},
    {"mistral", "sliding_window", "-4", "sliding_window is -4"},
    {"mistral", "sliding_window", "0", "sliding_window is 0, expected 1 or more, or null"},
    {"mistral", "layer_types", R"(["full_attention", "sliding_attention"])", "accepted"},
    {"mistral", "layer_types", R"(["full_attention"])", "layer_types has 1 entries, expected 2"},
    {"mistral", "attention_bias", "true", "attention_bias = true is not supported"},
    {"qwen2", "tie_word_embeddings", "false", "missing lm_head.weight"},
    {"qwen2", "use_sliding_window", "true", "accepted"},
    {"qwen2", "layer_types", R"(["full_attention", "sliding_attention"])",
     "layer 1 has sliding attention but no window"},
    {"qwen3", "layer_types", R"(["full_attention", "chunked_attention"])", "chunked_attention"},
    {"qwen3", "attention_bias", "true", "missing model.layers.0.self_attn.q_proj.bias"},
    {"qwen3", "num_experts", "64", "num_experts = 64: mixtures of experts"},
    {"phi3_long", "rope_parameters",
     R"({"rope_type": "longrope", "long_factor": [1.0, 2.0], "short_factor": [1.0, 2.0]})",
     "2 rope factors, expected 8"},
    {"gemma2", "use_bidirectional_attention", "true", "use_bidirectional_attention = true"},
    {"gemma2", "attn_logit_softcapping", "-5.0", "attention softcap is -5"},
    {"gemma3", "layer_types", R"(["full_attention", "chunked_attention", "full_attention"])",
     "layer_types: \"chunked_attention\" is not supported"},
    {"gemma3", "layer_types", R"(["full_attention"])", "layer_types has 1 entries, expected 3"},
    {"gemma3", "sliding_window", "null", "layer 0 has sliding attention but no window"},
    {"gemma3", "rope_parameters", R"({"rope_type": "linear", "factor": 2.0})",
     "config.rope_parameters has neither"},
    {"gemma3", "rope_scaling", R"({"rope_type": "linear", "factor": 2.0})",
     "config.rope_scaling beside config.rope_parameters"},
    {"gemma3", "text_config", R"({"hidden_size": 64})", "text and images"},
};

TEST(Family, WhatWouldChangeTheNumbersIsRefusedByName) {
  for (const Refusal& refusal : kRefusals) {
    const test::TempDir dir;
    const std::filesystem::path folder =
        test::source_path(fmt::format("tests/golden/families/{}", refusal.family));
    json::Value config =
        json::parse(base::read_text_file(folder / "config.json", 1 << 20).take()).take();
    config.as_object()[std::string(refusal.key)] = json::parse(refusal.value).take();
    std::ofstream(dir / "config.json") << json::serialize(config);
    std::filesystem::create_symlink(folder / "model.safetensors", dir / "model.safetensors");
    const formats::WeightFile file = formats::open_weights(dir.path()).take();
    const Result<ModelPlan> plan = plan_model(file);
    EXPECT_THAT(plan.ok() ? "accepted" : plan.error().message, HasSubstr(refusal.error))
        << refusal.family << " " << refusal.key << " = " << refusal.value;
  }
}

TEST(Family, QwenWindowsCoverTheLayersThatSlide) {
  const std::filesystem::path folder = test::source_path("tests/golden/families/qwen2");
  const formats::WeightFile source = formats::open_weights(folder).take();
  EXPECT_EQ(plan_model(source).take().config.attention[1].window, 0);
  const test::TempDir dir;
  json::Value config =
      json::parse(base::read_text_file(folder / "config.json", 1 << 20).take()).take();
  json::Object& fields = config.as_object();
  fields["use_sliding_window"] = true;
  fields["sliding_window"] = 9;
  fields["max_window_layers"] = 1;
  fields.erase("layer_types");
  std::ofstream(dir / "config.json") << json::serialize(config);
  std::filesystem::create_symlink(folder / "model.safetensors", dir / "model.safetensors");
  const formats::WeightFile file = formats::open_weights(dir.path()).take();
  const ModelConfig slides = plan_model(file).take().config;
  EXPECT_EQ(slides.attention[0].window, 0);
  EXPECT_EQ(slides.attention[1].window, 9);
}

TEST(Family, EveryNameOfTheTablesIsUsedOnce) {
  for (const Architecture& architecture : architectures()) {
    std::vector<std::string_view> gguf;
    std::vector<std::string_view> hf;
    for (const TensorRow& row : architecture.tensors) {
      gguf.push_back(row.gguf);
      hf.push_back(row.hf);
      EXPECT_EQ(row.is_layer(), row.hf.find("{}") != std::string_view::npos) << row.hf;
    }
    for (std::vector<std::string_view>* names : {&gguf, &hf}) {
      std::ranges::sort(*names);
      EXPECT_EQ(std::ranges::adjacent_find(*names), names->end()) << architecture.name;
    }
  }
}

}  // namespace
}  // namespace llorch::model
