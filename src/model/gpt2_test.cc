// GPT-2 from every format: numbers, tensor names, presets, and what a file may get wrong.
#include "model/architectures/gpt2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "compute/dequantize.h"
#include "formats/gguf_writer.h"
#include "formats/open.h"
#include "formats/test_safetensors.h"
#include "model/golden_fixture.h"
#include "tensor/half.h"

namespace llorch::model {
namespace {

using tensor::DType;
using testing::HasSubstr;

constexpr std::string_view kTiny = "tests/golden/gpt2_tiny";

formats::WeightFile open_tiny() {
  return formats::open_weights(test::source_path(kTiny)).take();
}

// GGUF names and layout of GPT-2, written from Hugging Face's: matrices transposed to (out, in),
// vectors F32.
struct GgufOptions {
  DType matrix_dtype = DType::F32;
  bool separate_output = false;
  std::string drop;   // leave this tensor out
  std::string extra;  // add a tensor of this name
  std::string architecture = "gpt2";
  std::int32_t num_heads = 4;
  float epsilon = 1e-5F;
};

std::vector<std::byte> encode(std::span<const float> values, DType dtype) {
  std::vector<std::byte> bytes(values.size() *
                               static_cast<std::size_t>(tensor::info(dtype).block_bytes));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::F32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
      continue;
    }
    const std::uint16_t half = dtype == DType::F16 ? tensor::float_to_half(values[i])
                                                   : tensor::float_to_bfloat16(values[i]);
    std::memcpy(bytes.data() + 2 * i, &half, 2);
  }
  return bytes;
}

std::string gguf_name(std::string name) {
  const auto replace = [&name](std::string_view from, std::string_view to) {
    if (const std::size_t at = name.find(from); at != std::string::npos)
      name.replace(at, from.size(), to);
  };
  replace("transformer.", "");
  replace("wte.", "token_embd.");
  replace("wpe.", "position_embd.");
  replace("ln_f.", "output_norm.");
  if (name.starts_with("h.")) name.replace(0, 2, "blk.");
  replace("ln_1.", "attn_norm.");
  replace("ln_2.", "ffn_norm.");
  replace("attn.c_attn.", "attn_qkv.");
  replace("attn.c_proj.", "attn_output.");
  replace("mlp.c_fc.", "ffn_up.");
  replace("mlp.c_proj.", "ffn_down.");
  return name;
}

void add_numbers(formats::GgufWriter& writer, const GgufOptions& options) {
  writer.add_text("general.architecture", options.architecture);
  writer.add_number("gpt2.context_length", std::uint32_t{64});
  writer.add_number("gpt2.embedding_length", std::uint32_t{48});
  writer.add_number("gpt2.block_count", std::uint32_t{3});
  writer.add_number("gpt2.feed_forward_length", std::uint32_t{192});
  writer.add_number("gpt2.attention.head_count", static_cast<std::uint32_t>(options.num_heads));
  writer.add_number("gpt2.attention.layer_norm_epsilon", options.epsilon);
}

std::filesystem::path write_gguf(const test::TempDir& dir, const GgufOptions& options) {
  const formats::WeightFile source = open_tiny();
  formats::GgufWriter writer;
  add_numbers(writer, options);
  std::vector<std::vector<std::byte>> owned;
  owned.reserve(2 * source.tensors().size());
  const auto add = [&](std::string name, DType dtype, tensor::Shape shape,
                       std::span<const float> values) {
    if (name == options.drop) return;
    owned.push_back(encode(values, dtype));
    writer.add_tensor({.name = std::move(name),
                       .dtype = dtype,
                       .shape = shape,
                       .bytes = owned.back(),
                       .produce = {}});
  };
  for (const formats::WeightTensor& tensor : source.tensors()) {
    std::vector<float> values = values_of<float>(tensor);
    const std::string name = gguf_name(tensor.name);
    if (tensor.shape.rank() == 1) {
      add(name, DType::F32, tensor.shape, values);
      continue;
    }
    tensor::Shape shape = tensor.shape;
    if (name.starts_with("blk.")) {
      const std::size_t in = static_cast<std::size_t>(shape[0]);
      const std::size_t out = static_cast<std::size_t>(shape[1]);
      const std::vector<float> stored = values;
      for (std::size_t o = 0; o < out; ++o) {
        for (std::size_t i = 0; i < in; ++i) values[o * in + i] = stored[i * out + o];
      }
      shape = {shape[1], shape[0]};
    }
    if (name == "token_embd.weight" && options.separate_output)
      add("output.weight", options.matrix_dtype, shape, values);
    add(name, options.matrix_dtype, shape, values);
  }
  if (!options.extra.empty()) add(options.extra, DType::F32, {2}, std::vector<float>{1, 2});
  std::filesystem::path path = dir / "model.gguf";
  const Status written = writer.write(path);
  EXPECT_TRUE(written.ok()) << written.error().message;
  return path;
}

std::vector<float> logits_of(const std::filesystem::path& path,
                             std::string_view backend_name = "cpu") {
  const auto backend = test_backend(backend_name, compute::InputForm::F32);
  const auto model = load_model(path, *backend);
  CHECK(model.ok(), model.error().message);
  const std::vector<std::int32_t> ids = Golden("gpt2_tiny").ids("ids");
  return record_trace(model.value(), *backend, ids, 1).take().tensors.at("logits").values;
}

std::string plan_error(const std::filesystem::path& path) {
  const Result<formats::WeightFile> file = formats::open_weights(path);
  CHECK(file.ok(), file.error().message);
  const Result<ModelPlan> plan = plan_model(file.value());
  return plan.ok() ? "accepted" : plan.error().message;
}

TEST(Gpt2, ReadsTheNumbersOfConfigJson) {
  const formats::WeightFile file = open_tiny();
  const ModelPlan plan = plan_model(file).take();
  EXPECT_EQ(plan.config.architecture, "gpt2");
  EXPECT_EQ(plan.config.vocab_size, 211);
  EXPECT_EQ(plan.config.context_length, 64);
  EXPECT_EQ(plan.config.hidden_dim, 48);
  EXPECT_EQ(plan.config.num_layers, 3);
  EXPECT_EQ(plan.config.num_heads, 4);
  EXPECT_EQ(plan.config.head_dim, 12);
  EXPECT_EQ(plan.config.ffn_dim, 192);  // n_inner is null: four times the width
  EXPECT_FLOAT_EQ(plan.config.norm_epsilon, 1e-5F);
  EXPECT_EQ(plan.config.activation, compute::Activation::GeluTanh);
  EXPECT_EQ(plan.config.variant, "");
  EXPECT_EQ(count_parameters(plan), 211 * 48 + 64 * 48 + 3 * (12 * 48 * 48 + 13 * 48) + 2 * 48);
}

TEST(Gpt2, ReadsTheEpsilonOfAGgufAndWhetherItsOutputIsTied) {
  const test::TempDir dir;
  const auto config_of = [&dir](const GgufOptions& options) {
    const formats::WeightFile file = formats::open_weights(write_gguf(dir, options)).take();
    return plan_model(file).take().config;
  };
  const ModelConfig tied = config_of({.epsilon = 3e-3F});
  EXPECT_FLOAT_EQ(tied.norm_epsilon, 3e-3F);
  EXPECT_TRUE(tied.tied_output);
  EXPECT_FALSE(config_of({.separate_output = true}).tied_output);
}

TEST(Gpt2, ReadsAnExplicitInnerWidth) {
  const formats::WeightFile file =
      formats::open_weights(test::source_path("tests/golden/gpt2_bf16")).take();
  EXPECT_EQ(plan_model(file).take().config.ffn_dim, 384);
}

// The published parameter counts, derived from nothing but the preset's three numbers.
TEST(Gpt2, PresetsHaveThePublishedSizes) {
  const std::map<std::string_view, std::int64_t> published = {{"gpt2", 124'439'808},
                                                              {"gpt2-medium", 354'823'168},
                                                              {"gpt2-large", 774'030'080},
                                                              {"gpt2-xl", 1'557'611'200}};
  ASSERT_EQ(gpt2_presets().size(), published.size());
  for (const Gpt2Preset& preset : gpt2_presets()) {
    const ModelConfig config = make_gpt2_config(preset);
    EXPECT_TRUE(validate(config).ok());
    EXPECT_EQ(config.head_dim, 64);
    const formats::WeightFile empty(formats::FileFormat::Gguf, "none");
    std::int64_t parameters = 0;
    for (const TensorSpec& spec : list_tensors(gpt2_architecture(), config, empty)) {
      if (spec.required) parameters += spec.shape.elements();
    }
    EXPECT_EQ(parameters, published.at(preset.name)) << preset.name;
  }
}

// Weights alone, as the first published checkpoints came: names without "transformer.", masks as
// buffers.
TEST(Gpt2, BareWeightsOfAPresetNeedNoConfig) {
  formats::WeightFile file(formats::FileFormat::SafeTensors, "bare");
  const ModelConfig small = make_gpt2_config(gpt2_presets()[0]);
  for (TensorSpec& spec : list_tensors(gpt2_architecture(), small, file)) {
    if (spec.required) {
      ASSERT_TRUE(spec.name.starts_with("transformer."));
      ASSERT_TRUE(file.add_tensor({.name = spec.name.substr(std::string("transformer.").size()),
                                   .dtype = DType::F32,
                                   .shape = spec.shape,
                                   .bytes = {},
                                   .strides = {}})
                      .ok());
    }
  }
  ASSERT_TRUE(file.add_tensor({.name = "h.0.attn.bias",
                               .dtype = DType::F32,
                               .shape = {1, 1, 1024, 1024},
                               .bytes = {},
                               .strides = {}})
                  .ok());
  ASSERT_TRUE(file.find("wte.weight") != nullptr);
  const Result<ModelPlan> plan = plan_model(file);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->config.variant, "gpt2");
  EXPECT_EQ(plan->config.num_heads, 12);
}

TEST(Gpt2, EveryFormatGivesTheSameLogitsBitForBit) {
  const test::TempDir dir;
  const std::vector<float> expected = logits_of(test::source_path(kTiny));
  EXPECT_EQ(logits_of(test::source_path("tests/golden/gpt2_tiny/model.safetensors")), expected);
  EXPECT_EQ(logits_of(test::source_path("tests/golden/gpt2_tiny/pytorch")), expected);
  EXPECT_EQ(logits_of(test::source_path("tests/golden/gpt2_tiny/sharded_safetensors")), expected);
  EXPECT_EQ(logits_of(test::source_path("tests/golden/gpt2_tiny/sharded_pytorch")), expected);
  EXPECT_EQ(logits_of(write_gguf(dir, {})), expected);
  EXPECT_EQ(logits_of(write_gguf(dir, {.separate_output = true})), expected);
}

TEST(Gpt2, HalfPrecisionWeightsStayClose) {
  const test::TempDir dir;
  const std::vector<float> expected = logits_of(test::source_path(kTiny));
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::F16, 0.02}, std::pair{DType::BF16, 0.15}}) {
    const std::filesystem::path path = write_gguf(dir, {.matrix_dtype = dtype});
    const std::vector<float> ours = logits_of(path);
    double worst = 0;
    for (std::size_t i = 0; i < ours.size(); ++i)
      worst = std::max(worst, std::abs(double{ours[i]} - expected[i]));
    EXPECT_GT(worst, 0);
    EXPECT_LT(worst, tolerance) << tensor::name(dtype);
    // The kernels and the reference read the very same numbers.
    const std::vector<float> reference = logits_of(path, "reference");
    for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], reference[i], 1e-3);
  }
}

TEST(TensorMap, NamesWhatIsMissingExtraOrMisshapenAllAtOnce) {
  const test::TempDir dir;
  const std::string error = plan_error(
      write_gguf(dir, {.drop = "blk.1.ffn_down.weight", .extra = "blk.1.ffn_gate.weight"}));
  EXPECT_THAT(error, HasSubstr("missing blk.1.ffn_down.weight [48, 192]"));
  EXPECT_THAT(error, HasSubstr("unknown blk.1.ffn_gate.weight [2]"));
  formats::WeightFile file = open_tiny();
  ModelConfig config = plan_model(file).take().config;
  config.vocab_size = 300;
  const auto mapped = map_tensors(list_tensors(gpt2_architecture(), config, file), file,
                                  gpt2_architecture().is_ignored);
  ASSERT_FALSE(mapped.ok());
  EXPECT_THAT(mapped.error().message,
              HasSubstr("transformer.wte.weight has shape [211, 48], expected [300, 48]"));
}

TEST(TensorMap, EveryExpectedTensorIsLoadedExactlyOnce) {
  const formats::WeightFile file = open_tiny();
  const ModelPlan plan = plan_model(file).take();
  std::vector<std::string> used;
  for (const MappedTensor& mapped : plan.tensors) used.push_back(mapped.tensor->name);
  std::ranges::sort(used);
  EXPECT_EQ(std::ranges::adjacent_find(used), used.end());
  EXPECT_EQ(used.size(), file.tensors().size());
}

TEST(Architecture, UnknownFamilyListsTheKnownOnes) {
  const test::TempDir dir;
  const std::string error = plan_error(write_gguf(dir, {.architecture = "mamba"}));
  EXPECT_THAT(error, HasSubstr(R"(architecture "mamba" is not supported; known: gpt2)"));
}

TEST(Architecture, AFileThatNamesNoneSaysWhereItShould) {
  const test::TempDir dir;
  const std::vector<float> values = {1, 2};
  formats::write_safetensors(dir / "x.safetensors", {{.name = "w",
                                                      .dtype = DType::F32,
                                                      .shape = {2},
                                                      .bytes = std::as_bytes(std::span(values)),
                                                      .strides = {}}});
  EXPECT_THAT(plan_error(dir / "x.safetensors"), HasSubstr("model_type in a config.json"));
}

TEST(Architecture, WrongNumbersAreErrorsThatNameThem) {
  const test::TempDir dir;
  EXPECT_THAT(plan_error(write_gguf(dir, {.num_heads = 5})),
              HasSubstr("48 is not a multiple of the head count 5"));
  EXPECT_THAT(plan_error(write_gguf(dir, {.num_heads = 0})), HasSubstr("head count 0"));
  EXPECT_THAT(plan_error(write_gguf(dir, {.epsilon = std::nanf("")})), HasSubstr("epsilon"));
  EXPECT_THAT(plan_error(write_gguf(dir, {.epsilon = -1})), HasSubstr("epsilon"));
}

TEST(Architecture, UnsupportedVariantsOfConfigAreRefused) {
  const test::TempDir dir;
  const std::string config =
      base::read_text_file(test::source_path("tests/golden/gpt2_tiny/config.json"), 1 << 20).take();
  std::filesystem::copy_file(test::source_path("tests/golden/gpt2_tiny/model.safetensors"),
                             dir / "model.safetensors");
  const auto error_with = [&](std::string_view from, std::string_view to) {
    std::string edited = config;
    edited.replace(edited.find(from), from.size(), to);
    std::ofstream(dir / "config.json") << edited;
    return plan_error(dir.path());
  };
  EXPECT_EQ(error_with("\"use_cache\"", "\"use_cache\""), "accepted");
  EXPECT_THAT(error_with("\"gelu_new\"", "\"swiglu\""),
              HasSubstr("activation_function 'swiglu' is not supported"));
  EXPECT_THAT(error_with("\"scale_attn_weights\": true", "\"scale_attn_weights\": false"),
              HasSubstr("scale_attn_weights"));
  EXPECT_THAT(error_with("\"use_cache\"", "\"is_causal\": false, \"use_cache\""),
              HasSubstr("is_causal = false is not supported"));
  EXPECT_THAT(error_with("\"n_embd\"", "\"hidden_size\""), HasSubstr("has no n_embd"));
  EXPECT_THAT(error_with("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"),
              HasSubstr("missing lm_head.weight"));
  EXPECT_THAT(error_with("\"n_head\": 4", "\"n_head\": \"four\""), HasSubstr("n_head"));
  EXPECT_THAT(error_with("\"n_layer\": 3", "\"n_layer\": 4"),
              HasSubstr("missing transformer.h.3."));
  EXPECT_THAT(error_with("\"n_layer\": 3", "\"n_layer\": 2"),
              HasSubstr("unknown transformer.h.2."));
  EXPECT_THAT(error_with("\"n_embd\": 48", "\"n_embd\": 2000000000"), HasSubstr("2000000000"));
}

}  // namespace
}  // namespace llorch::model
