// Keys that a config.json leaves out or sets to null: the numbers that transformers takes, or a
// refusal by the key's name (tests/golden/config_defaults.json); and those of GGUF files.
#include "model/architectures/defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "formats/json_metadata.h"
#include "model/architecture.h"
#include "support/test_paths.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::WeightFile;
using testing::Contains;
using testing::HasSubstr;

// What no default could guess: we refuse where transformers builds another model.
constexpr std::array<std::string_view, 8> kSizes = {
    "vocab_size",          "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "n_embd",      "n_layer",           "n_head"};

std::string text_of(const json::Value& value) {
  return std::string(json::view(value.as_string()));
}

// The dotted key taken out of a config.json, or set to null.
json::Value change(json::Value config, std::string_view dotted, bool null) {
  json::Object* at = &config.as_object();
  for (std::size_t dot = dotted.find('.'); dot != std::string_view::npos; dot = dotted.find('.')) {
    at = &at->at(std::string(dotted.substr(0, dot))).as_object();
    dotted.remove_prefix(dot + 1);
  }
  if (null) {
    (*at)[std::string(dotted)] = nullptr;
  } else {
    at->erase(std::string(dotted));
  }
  return config;
}

Result<ModelConfig> read(const json::Value& config) {
  WeightFile file(FileFormat::SafeTensors, "model.safetensors");
  const Status added =
      formats::add_json_metadata(json::serialize(config), "config", file.mutable_metadata());
  if (!added.ok()) return added.error();
  Result<const Architecture*> family = find_architecture(file);
  if (!family.ok()) return family.error();
  Result<ModelConfig> read = family.value()->read_config(file, {});
  if (!read.ok()) return read;
  if (Status valid = validate(read.value()); !valid.ok()) return valid.error();
  return read;
}

std::map<std::string, double> numbers_of(const ModelConfig& config) {
  const float scale = config.attention_scale;
  return {{"vocab_size", config.vocab_size},
          {"context_length", config.context_length},
          {"hidden_dim", config.hidden_dim},
          {"num_layers", config.num_layers},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"ffn_dim", config.ffn_dim},
          {"norm_epsilon", config.norm_epsilon},
          {"tied_output", config.tied_output},
          {"qkv_bias", config.qkv_bias},
          {"attn_out_bias", config.attn_out_bias},
          {"mlp_bias", config.mlp_bias},
          {"attention_scale", scale > 0 ? scale : 1 / std::sqrt(double(config.head_dim))},
          {"attention_softcap", config.attention_softcap},
          {"logit_softcap", config.logit_softcap}};
}

double number_of(const json::Value& value) {
  return value.is_bool() ? double(value.get_bool()) : value.to_number<double>();
}

bool near(double ours, double theirs) {
  return std::abs(ours - theirs) <= 2e-6 * std::max(std::abs(theirs), 1e-12);
}

// One entry stands for all layers.
const json::Value& of_layer(const json::Array& values, std::int32_t layer) {
  return values.size() == 1 ? values[0] : values.at(static_cast<std::size_t>(layer));
}

void expect_same_rope(const RopeConfig& ours, const json::Object& theirs, const std::string& what) {
  EXPECT_TRUE(near(ours.magnitude, theirs.at("magnitude").to_number<double>()))
      << what << ": attention factor " << ours.magnitude;
  const json::Array& frequencies = theirs.at("frequencies").as_array();
  ASSERT_EQ(ours.frequencies.size(), frequencies.size()) << what;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    EXPECT_TRUE(near(ours.frequencies[i], frequencies[i].to_number<double>()))
        << what << ": frequency " << i << " is " << ours.frequencies[i] << ", expected "
        << frequencies[i].to_number<double>();
  }
}

void expect_same(const ModelConfig& ours, const json::Object& theirs, const std::string& what) {
  for (const auto& [name, value] : numbers_of(ours)) {
    if (!theirs.contains(name)) continue;  // GPT-2 has no such thing
    EXPECT_TRUE(near(value, number_of(theirs.at(name))))
        << what << ": " << name << " is " << value << ", expected " << number_of(theirs.at(name));
  }
  EXPECT_EQ(name(ours.activation), text_of(theirs.at("activation"))) << what;
  if (!theirs.contains("windows")) return;
  for (std::int32_t layer = 0; layer < ours.num_layers; ++layer) {
    const LayerAttention attention = ours.layer_attention(layer);
    const std::string where = what + ", layer " + std::to_string(layer);
    EXPECT_EQ(attention.window, of_layer(theirs.at("windows").as_array(), layer).as_int64())
        << where;
    expect_same_rope(ours.ropes.at(static_cast<std::size_t>(attention.rope)),
                     of_layer(theirs.at("ropes").as_array(), layer).as_object(), where);
  }
}

json::Value load_fixture() {
  return json::parse(
             base::read_text_file(test::source_path("tests/golden/config_defaults.json"), 1 << 24)
                 .take(),
             {.max_bytes = 1 << 24})
      .take();
}

void check_case(const json::Object& entry, const json::Object& the_case) {
  const std::string key = text_of(the_case.at("key"));
  const bool null = the_case.at("null").as_bool();
  const std::string what = text_of(entry.at("family")) + " (" + text_of(entry.at("spelling")) +
                           ") " + (null ? "with null for " : "without ") + key;
  const Result<ModelConfig> ours = read(change(entry.at("config"), key, null));
  // Phi-3's first files say "su" and state the context beside the section only, which transformers
  // no longer reads. Its Ministral cannot do without a head size, which follows as in any Mistral.
  const std::string spelling = text_of(entry.at("spelling"));
  const bool we_read_more =
      (spelling == "old" && !null && key == "rope_scaling.original_max_position_embeddings") ||
      (spelling == "layers" && key == "head_dim");
  const std::string last = key.substr(key.rfind('.') + 1);
  if (!we_read_more &&
      (the_case.contains("error") || std::ranges::find(kSizes, key) != kSizes.end())) {
    ASSERT_FALSE(ours.ok()) << what << " is accepted";
    EXPECT_THAT(ours.error().message, HasSubstr(last)) << what;
    return;
  }
  ASSERT_TRUE(ours.ok()) << what << ": " << ours.error().message;
  json::Object expected = entry.at("effective").as_object();
  if (key == "head_dim" && we_read_more) {
    EXPECT_EQ(ours->head_dim, ours->hidden_dim / ours->num_heads) << what;
    return;
  }
  if (!we_read_more) {
    for (const auto& changed : the_case.at("changes").as_object())
      expected[changed.key()] = changed.value();
  }
  expect_same(ours.value(), expected, what);
}

TEST(Defaults, EveryKeyLeftOutIsWhatTransformersTakesOrIsRefusedByName) {
  const json::Value fixture = load_fixture();
  std::map<std::string, int> cases;
  for (const json::Value& value : fixture.as_array()) {
    const json::Object& entry = value.as_object();
    const std::string family = text_of(entry.at("family"));
    const Result<ModelConfig> whole = read(entry.at("config"));
    ASSERT_TRUE(whole.ok()) << family << ": " << whole.error().message;
    expect_same(whole.value(), entry.at("effective").as_object(), family);
    EXPECT_TRUE(whole->assumed.empty() || family == "phi3") << family << " assumes something";
    for (const json::Value& the_case : entry.at("cases").as_array()) {
      check_case(entry, the_case.as_object());
      ++cases[family];
    }
  }
  for (const Architecture& architecture : architectures())
    EXPECT_GE(cases[std::string(architecture.name)], 18) << architecture.name;
}

// What type the weights were saved in says nothing about the numbers, in either spelling.
TEST(Defaults, TheTypeOfTheWeightsChangesNothing) {
  const json::Value fixture = load_fixture();
  for (const json::Value& value : fixture.as_array()) {
    const json::Object& entry = value.as_object();
    for (const char* key : {"dtype", "torch_dtype"}) {
      for (const json::Value& type :
           {json::Value("bfloat16"), json::Value("float32"), json::Value(nullptr)}) {
        json::Value config = entry.at("config");
        config.as_object()[key] = type;
        const Result<ModelConfig> ours = read(config);
        const std::string what = text_of(entry.at("family")) + " with " + key;
        ASSERT_TRUE(ours.ok()) << what << ": " << ours.error().message;
        expect_same(ours.value(), entry.at("effective").as_object(), what);
      }
    }
  }
}

// The first published files of GPT-2 say n_ctx.
TEST(Defaults, Gpt2sOldNameOfTheContextIsRead) {
  const json::Value config = json::parse(R"({"model_type": "gpt2", "vocab_size": 96, "n_embd": 64,
      "n_layer": 1, "n_head": 4, "n_ctx": 77})")
                                 .take();
  EXPECT_EQ(read(config)->context_length, 77);
}

// Qwen's windows begin at layer 28 where config.json names neither layers nor a first one.
TEST(Defaults, QwenSlidesFromLayer28On) {
  const ModelConfig config =
      read(json::parse(R"({"model_type": "qwen2", "vocab_size": 96, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 30, "num_attention_heads": 4,
      "num_key_value_heads": 4, "use_sliding_window": true, "sliding_window": 9})")
               .take())
          .take();
  EXPECT_EQ(config.attention[27].window, 0);
  EXPECT_EQ(config.attention[28].window, 9);
}

// The old spelling wins where a file has both, as in transformers.
TEST(Defaults, RopeScalingCountsBeforeRopeParameters) {
  json::Value config = json::parse(R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
      "rope_theta": 20000.0, "rope_scaling": {"type": "linear", "factor": 2.0},
      "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}})")
                           .take();
  const ModelConfig both = read(config).take();
  EXPECT_EQ(both.ropes[0].recipe.theta, 20000);
  EXPECT_EQ(both.ropes[0].recipe.scaling, RopeScaling::Linear);
  EXPECT_THAT(both.assumed, Contains("rms_norm_eps = 1e-06"));
  EXPECT_THAT(both.assumed, Contains("max_position_embeddings = 2048"));
  config.as_object()["rope_scaling"] = json::parse(R"({"type": null})").take();
  EXPECT_THAT(read(config).error().message, HasSubstr("rope_scaling.type is null"));
}

// transformers 5 reads this name of the key everywhere but in Gemma 3, where older ones did.
TEST(Defaults, Gemma3sScalingIsNamedRopeType) {
  json::Value config = json::parse(R"({"model_type": "gemma3_text", "vocab_size": 96,
      "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
      "num_attention_heads": 4, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})")
                           .take();
  EXPECT_EQ(read(config)->ropes[0].recipe.scaling, RopeScaling::Linear);
  config.as_object()["rope_scaling"] = json::parse(R"({"type": "linear", "factor": 2.0})").take();
  EXPECT_THAT(read(config).error().message, HasSubstr("config.rope_scaling.type"));
}

// A default that does not fit the rest is told with the error.
TEST(Defaults, AnErrorNamesWhatWasAssumed) {
  const json::Value config =
      json::parse(R"({"model_type": "mistral", "vocab_size": 96, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4})")
          .take();
  const Result<ModelConfig> read_alone = read(config);
  ASSERT_FALSE(read_alone.ok());
  EXPECT_THAT(read_alone.error().message, HasSubstr("num_key_value_heads = 8"));
}

// --- GGUF ---

using Facts = std::map<std::string, formats::Value>;

Facts gguf_facts(const std::string& family) {
  Facts facts = {{"general.architecture", family}};
  for (const auto& [key, value] :
       {std::pair{"embedding_length", 64}, std::pair{"block_count", 3},
        std::pair{"feed_forward_length", 96}, std::pair{"context_length", 512},
        std::pair{"attention.head_count", 4}, std::pair{"attention.head_count_kv", 2},
        std::pair{"attention.key_length", 32}, std::pair{"attention.sliding_window", 11},
        std::pair{"attention.sliding_window_pattern", 3}, std::pair{"rope.dimension_count", 32}}) {
    facts[family + "." + key] = std::int64_t{value};
  }
  for (const auto& [key, value] :
       {std::pair{"attention.layer_norm_rms_epsilon", 3e-4},
        std::pair{"attn_logit_softcapping", 5.0}, std::pair{"final_logit_softcapping", 20.0},
        std::pair{"rope.freq_base", 5e5}, std::pair{"rope.freq_base_swa", 3e3}}) {
    facts[family + "." + key] = value;
  }
  return facts;
}

Result<ModelConfig> read_gguf(const Facts& facts) {
  WeightFile file(FileFormat::Gguf, "model.gguf");
  for (const auto& [key, value] : facts) EXPECT_TRUE(file.mutable_metadata().add(key, value).ok());
  static const std::vector<std::byte> table(96 * 64 * 4);
  EXPECT_TRUE(file.add_tensor({.name = "token_embd.weight",
                               .dtype = tensor::DType::F32,
                               .shape = {96, 64},
                               .bytes = table,
                               .strides = {}})
                  .ok());
  return find_architecture(file).value()->read_config(file, {});
}

std::string read_without(const std::string& family, const std::string& key,
                         void (*check)(const ModelConfig&)) {
  Facts facts = gguf_facts(family);
  facts.erase(family + "." + key);
  const Result<ModelConfig> config = read_gguf(facts);
  if (!config.ok()) return config.error().message;
  check(config.value());
  return "accepted";
}

// llama.cpp's defaults (llama-model.cpp, models/gemma2.cpp, models/gemma3.cpp), or a refusal.
TEST(Defaults, GgufKeysLeftOutAreWhatLlamaCppTakesOrRefusedByName) {
  const auto nothing = [](const ModelConfig&) {};
  for (const Architecture& architecture : architectures()) {
    const std::string family(architecture.name);
    if (family == "gpt2") continue;
    for (const char* key :
         {"embedding_length", "block_count", "feed_forward_length", "context_length",
          "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
      EXPECT_THAT(read_without(family, key, nothing), HasSubstr(family + "." + key));
    }
    EXPECT_EQ(read_without(family, "attention.head_count_kv",
                           [](const ModelConfig& c) { EXPECT_EQ(c.num_kv_heads, 4); }),
              "accepted")
        << family;
    EXPECT_EQ(read_without(family, "rope.freq_base",
                           [](const ModelConfig& c) { EXPECT_EQ(c.ropes[0].recipe.theta, 10000); }),
              "accepted")
        << family;
  }
  EXPECT_THAT(read_without("gemma3", "attention.sliding_window", nothing),
              HasSubstr("gemma3.attention.sliding_window"));
}

TEST(Defaults, GgufOfGemma) {
  const auto windows = [](const ModelConfig& config) {
    std::vector<std::int32_t> all;
    for (const LayerAttention& layer : config.attention) all.push_back(layer.window);
    return all;
  };
  const ModelConfig whole = read_gguf(gguf_facts("gemma2")).take();
  EXPECT_THAT(windows(whole), testing::ElementsAre(11, 11, 0));
  EXPECT_EQ(whole.attention_softcap, 5);
  EXPECT_EQ(whole.logit_softcap, 20);
  EXPECT_TRUE(whole.assumed.empty()) << whole.assumed[0];
  Facts facts = gguf_facts("gemma2");
  for (const char* key : {"attention.sliding_window", "attention.sliding_window_pattern",
                          "attn_logit_softcapping", "final_logit_softcapping"})
    facts.erase(std::string("gemma2.") + key);
  const ModelConfig bare = read_gguf(facts).take();
  EXPECT_THAT(windows(bare), testing::ElementsAre(4096, 0, 4096));
  EXPECT_EQ(bare.attention_softcap, 50);
  EXPECT_EQ(bare.logit_softcap, 30);
  EXPECT_THAT(bare.assumed, Contains("gemma2.attn_logit_softcapping = 50"));

  Facts gemma3 = gguf_facts("gemma3");
  EXPECT_THAT(windows(read_gguf(gemma3).take()), testing::ElementsAre(11, 11, 0));
  EXPECT_EQ(read_gguf(gemma3)->ropes[1].recipe.theta, 3000);
  EXPECT_EQ(read_gguf(gemma3)->attention_softcap, 0);  // llama.cpp's Gemma 3 has no such cap
  for (const char* key : {"attention.sliding_window_pattern", "attn_logit_softcapping",
                          "final_logit_softcapping", "rope.freq_base_swa"})
    gemma3.erase(std::string("gemma3.") + key);
  gemma3["gemma3.block_count"] = std::int64_t{7};
  const ModelConfig seven = read_gguf(gemma3).take();
  EXPECT_THAT(windows(seven), testing::ElementsAre(11, 11, 11, 11, 11, 0, 11));
  EXPECT_EQ(seven.attention_softcap, 0);
  EXPECT_EQ(seven.logit_softcap, 0);
  EXPECT_EQ(seven.ropes[1].recipe.theta, 10000);
  EXPECT_EQ(seven.attention[5].rope, 0);
  EXPECT_EQ(seven.attention[6].rope, 1);
  gemma3["gemma3.attention.sliding_window_pattern"] = std::int64_t{0};
  EXPECT_THAT(read_gguf(gemma3).error().message, HasSubstr("sliding_window_pattern is 0"));
  gemma3["gemma3.attention.sliding_window_pattern"] = std::string("every sixth");
  EXPECT_THAT(read_gguf(gemma3).error().message, HasSubstr("sliding_window_pattern"));
}

// The GGUF files of the 27B models do not state their scale: llama.cpp knows them by their layers.
TEST(Defaults, GgufOfGemma27bHasItsOwnScale) {
  for (const auto& [family, layers, scale] :
       {std::tuple{"gemma2", 46, 0.25F}, std::tuple{"gemma2", 62, 0.0F},
        std::tuple{"gemma3", 62, 0.25F}, std::tuple{"gemma3", 46, 0.0F}}) {
    Facts facts = gguf_facts(family);
    facts[std::string(family) + ".block_count"] = std::int64_t{layers};
    EXPECT_EQ(read_gguf(facts)->attention_scale, scale) << family << " of " << layers;
  }
}

TEST(Defaults, GgufWindowsOfFamiliesThatSlideInEveryLayer) {
  for (const char* family : {"llama", "mistral", "phi3"}) {
    const ModelConfig config = read_gguf(gguf_facts(family)).take();
    for (const LayerAttention& layer : config.attention) EXPECT_EQ(layer.window, 11) << family;
  }
}

TEST(Defaults, GgufKeysAndValuesOfOneLengthOnly) {
  Facts facts = gguf_facts("llama");
  facts["llama.attention.value_length"] = std::int64_t{32};
  EXPECT_TRUE(read_gguf(facts).ok());
  facts["llama.attention.value_length"] = std::int64_t{16};
  EXPECT_THAT(read_gguf(facts).error().message, HasSubstr("keys of 32 and values of 16"));
}

// A factor without a type is linear, under its old name too; 0 is none.
TEST(Defaults, GgufRopeFactorWithoutATypeIsLinear) {
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    Facts facts = gguf_facts("llama");
    const RopeConfig plain = read_gguf(facts)->ropes[0];
    facts[key] = 4.0;
    const RopeConfig scaled = read_gguf(facts)->ropes[0];
    EXPECT_EQ(scaled.recipe.scaling, RopeScaling::Linear) << key;
    ASSERT_EQ(scaled.frequencies.size(), plain.frequencies.size());
    for (std::size_t i = 0; i < plain.frequencies.size(); ++i)
      EXPECT_FLOAT_EQ(scaled.frequencies[i], plain.frequencies[i] / 4) << key;
    facts[key] = 0.0;
    EXPECT_EQ(read_gguf(facts)->ropes[0].frequencies, plain.frequencies) << key;
    facts[key] = 4.0;
    facts["llama.rope.scaling.type"] = std::string("none");
    EXPECT_EQ(read_gguf(facts)->ropes[0].frequencies, plain.frequencies) << key;
  }
}

// A GGUF file of a Llama whose MLP has biases, or that has an output matrix of its own, says so by
// its tensors alone.
TEST(Defaults, GgufBiasesAreThoseOfItsTensors) {
  for (const auto& [tensor, which] :
       {std::pair{"blk.0.ffn_gate.bias", &ModelConfig::mlp_bias},
        std::pair{"blk.0.attn_q.bias", &ModelConfig::qkv_bias},
        std::pair{"blk.0.attn_output.bias", &ModelConfig::attn_out_bias},
        std::pair{"output.weight", static_cast<bool ModelConfig::*>(nullptr)}}) {
    WeightFile file(FileFormat::Gguf, "model.gguf");
    for (const auto& [key, value] : gguf_facts("llama"))
      ASSERT_TRUE(file.mutable_metadata().add(key, value).ok());
    const std::vector<std::byte> zeros(96 * 64 * 4);
    for (const char* name : {"token_embd.weight", tensor}) {
      ASSERT_TRUE(file.add_tensor({.name = name,
                                   .dtype = tensor::DType::F32,
                                   .shape = {96, 64},
                                   .bytes = zeros,
                                   .strides = {}})
                      .ok());
    }
    const ModelConfig config = find_architecture(file).value()->read_config(file, {}).take();
    for (const auto member :
         {&ModelConfig::mlp_bias, &ModelConfig::qkv_bias, &ModelConfig::attn_out_bias})
      EXPECT_EQ(config.*member, member == which) << tensor;
    EXPECT_EQ(config.tied_output, std::string_view(tensor) != "output.weight");
  }
}

}  // namespace
}  // namespace llorch::model
