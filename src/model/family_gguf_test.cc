// GGUF files of the golden families, written as llama.cpp's converter writes them, are the same
// models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "formats/gguf_writer.h"
#include "model/breakable_model.h"
#include "model/rope.h"

namespace llorch::model {
namespace {

using tensor::DType;
using testing::HasSubstr;

struct GgufCase {
  std::string_view family;  // folder of tests/golden/families
  std::string_view architecture;
  void (*add_own)(formats::GgufWriter& writer, const ModelConfig& config);
};

void add_float(formats::GgufWriter& writer, std::string_view key, double value) {
  writer.add_number(key, static_cast<float>(value));
}

void add_factors(formats::GgufWriter& writer, std::string name, std::vector<float> factors) {
  auto kept = std::make_shared<std::vector<float>>(std::move(factors));
  writer.add_tensor({.name = std::move(name),
                     .dtype = DType::F32,
                     .shape = {static_cast<std::int64_t>(kept->size())},
                     .bytes = {},
                     .produce = [kept](const formats::GgufTensor::Sink& sink) {
                       return sink(std::as_bytes(std::span(*kept)));
                     }});
}

const GgufCase kGgufCases[] = {
    {"llama", "llama",
     [](formats::GgufWriter& writer, const ModelConfig& config) {
       std::vector<float> factors = unscaled(8, 10000);
       for (std::size_t i = 0; i < factors.size(); ++i)
         factors[i] /= config.ropes[0].frequencies[i];
       add_factors(writer, "rope_freqs.weight", factors);
     }},
    {"mistral", "llama",
     [](formats::GgufWriter& writer, const ModelConfig&) {
       writer.add_number("llama.attention.sliding_window", std::uint32_t{11});
     }},
    {"qwen2", "qwen2",
     [](formats::GgufWriter& writer, const ModelConfig&) {
       add_float(writer, "qwen2.rope.freq_base", 1e6);
     }},
    {"qwen3", "qwen3",
     [](formats::GgufWriter& writer, const ModelConfig&) {
       add_float(writer, "qwen3.rope.freq_base", 1e6);
     }},
    {"phi3", "phi3",
     [](formats::GgufWriter& writer, const ModelConfig&) {
       writer.add_number("phi3.rope.dimension_count", std::uint32_t{12});
       writer.add_number("phi3.attention.sliding_window", std::uint32_t{19});
     }},
    {"phi3_long", "phi3",
     [](formats::GgufWriter& writer, const ModelConfig& config) {
       writer.add_number("phi3.rope.dimension_count", std::uint32_t{16});
       writer.add_number("phi3.rope.scaling.original_context_length", std::uint32_t{32});
       add_float(writer, "phi3.rope.scaling.attn_factor", config.ropes[0].magnitude);
       add_factors(writer, "rope_factors_long.weight", {1, 1.5F, 2.5F, 4, 6, 9, 14, 20});
       add_factors(writer, "rope_factors_short.weight", {1, 1.1F, 1.2F, 1.3F, 1.5F, 1.7F, 2, 2.5F});
     }},
    {"gemma2", "gemma2",
     [](formats::GgufWriter& writer, const ModelConfig& config) {
       writer.add_number("gemma2.attention.sliding_window", std::uint32_t{11});
       add_float(writer, "gemma2.attention.scale", config.attention_scale);
       add_float(writer, "gemma2.attn_logit_softcapping", 5);
       add_float(writer, "gemma2.final_logit_softcapping", 20);
     }},
    {"gemma3", "gemma3",
     [](formats::GgufWriter& writer, const ModelConfig& config) {
       writer.add_number("gemma3.attention.sliding_window", std::uint32_t{11});
       writer.add_number("gemma3.attention.sliding_window_pattern", std::uint32_t{2});
       add_float(writer, "gemma3.attention.scale", config.attention_scale);
       add_float(writer, "gemma3.rope.freq_base", 100000);
       writer.add_text("gemma3.rope.scaling.type", "linear");
       add_float(writer, "gemma3.rope.scaling.factor", 4);
       add_float(writer, "gemma3.rope.freq_base_swa", 1000);
     }},
};

void add_numbers(formats::GgufWriter& writer, std::string_view architecture,
                 const ModelConfig& config) {
  writer.add_text("general.architecture", architecture);
  for (const auto& [key, value] : {std::pair{"context_length", config.context_length},
                                   std::pair{"embedding_length", config.hidden_dim},
                                   std::pair{"block_count", config.num_layers},
                                   std::pair{"feed_forward_length", config.ffn_dim},
                                   std::pair{"attention.head_count", config.num_heads},
                                   std::pair{"attention.head_count_kv", config.num_kv_heads},
                                   std::pair{"attention.key_length", config.head_dim},
                                   std::pair{"attention.value_length", config.head_dim}}) {
    writer.add_number(fmt::format("{}.{}", architecture, key), static_cast<std::uint32_t>(value));
  }
  writer.add_number(fmt::format("{}.attention.layer_norm_rms_epsilon", architecture),
                    config.norm_epsilon);
}

// A tensor's values as its family's GGUF files have them.
std::vector<float> gguf_values(const formats::WeightTensor& tensor, const TensorRow& row,
                               const GgufForm& form, const ModelConfig& config) {
  std::vector<float> values = values_of<float>(tensor);
  if (form.norms_plus_one && row.in == Width::None) {
    for (float& value : values) value += 1;
  }
  if (!form.paired_rows || !row.rotated) return values;
  const std::size_t width = row.in == Width::None ? 1 : static_cast<std::size_t>(tensor.shape[1]);
  const auto head = static_cast<std::size_t>(config.head_dim);
  std::vector<float> paired(values.size());
  for (std::size_t out = 0; out < values.size() / width; ++out) {
    const auto from =
        out / head * head + static_cast<std::size_t>(
                                paired_row(static_cast<std::int64_t>(out % head), config.head_dim));
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(from * width), width,
                paired.begin() + static_cast<std::ptrdiff_t>(out * width));
  }
  return paired;
}

std::filesystem::path write_gguf(const std::filesystem::path& path, const GgufCase& family) {
  const formats::WeightFile source =
      formats::open_weights(
          test::source_path(fmt::format("tests/golden/families/{}", family.family)))
          .take();
  const ModelConfig config = plan_model(source).take().config;
  const Architecture& architecture = *find_architecture(source).value();
  EXPECT_EQ(architecture.gguf_name, family.architecture);
  formats::GgufWriter writer;
  add_numbers(writer, family.architecture, config);
  family.add_own(writer, config);
  std::vector<std::vector<float>> kept;
  kept.reserve(source.tensors().size());
  for (const TensorRow& row : architecture.tensors) {
    for (std::int32_t layer = 0; layer < (row.is_layer() ? config.num_layers : 1); ++layer) {
      const formats::WeightTensor* tensor = source.find(tensor_name(row.hf, layer));
      if (tensor == nullptr) continue;
      kept.push_back(gguf_values(*tensor, row, architecture.gguf_form, config));
      writer.add_tensor({.name = tensor_name(row.gguf, layer),
                         .dtype = DType::F32,
                         .shape = tensor->shape,
                         .bytes = std::as_bytes(std::span(kept.back())),
                         .produce = {}});
    }
  }
  EXPECT_EQ(kept.size(), source.tensors().size());
  const Status written = writer.write(path);
  EXPECT_TRUE(written.ok()) << written.error().message;
  return path;
}

class FamilyGguf : public testing::TestWithParam<GgufCase> {};

TEST_P(FamilyGguf, IsTheSameModel) {
  const test::TempDir dir;
  const std::filesystem::path path = write_gguf(dir / "model.gguf", GetParam());
  const Trace reference = Golden(fmt::format("families/{}", GetParam().family)).trace();
  for (const char* name : {"cpu", "reference"}) {
    const auto backend = test_backend(name);
    const auto model = load_model(path, *backend);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto greedy =
        static_cast<std::int32_t>(reference.greedy_ids.size() - reference.ids.size());
    const Trace ours = record_trace(model.value(), *backend, reference.ids, greedy).take();
    const std::vector<CheckpointResult> ladder = compare(ours, reference);
    // The cache of llama's files has its keys in another order; everything from scores on agrees.
    for (const int rung : {1, 4, 5, 6, 7, 8, 9, 10, 11, 12}) {
      const CheckpointResult& result = ladder[static_cast<std::size_t>(rung - 1)];
      EXPECT_TRUE(result.passed) << result.checkpoint.name << ": " << result.difference;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGguf, testing::ValuesIn(kGgufCases),
                         [](const auto& test) { return std::string(test.param.family); });

TEST(FamilyGgufRefusal, NamesWhatItIs) {
  const auto error_with = [](void (*add_own)(formats::GgufWriter&, const ModelConfig&)) {
    const test::TempDir dir;
    const std::filesystem::path path = write_gguf(dir / "model.gguf", {"llama", "llama", add_own});
    const formats::WeightFile file = formats::open_weights(path).take();
    const Result<ModelPlan> plan = plan_model(file);
    return plan.ok() ? "accepted" : plan.error().message;
  };
  EXPECT_EQ(error_with([](formats::GgufWriter&, const ModelConfig&) {}), "accepted");
  EXPECT_THAT(error_with([](formats::GgufWriter& writer, const ModelConfig&) {
                writer.add_number("llama.expert_count", std::uint32_t{8});
              }),
              HasSubstr("llama.expert_count = 8: mixtures of experts"));
  EXPECT_THAT(error_with([](formats::GgufWriter& writer, const ModelConfig&) {
                add_factors(writer, "rope_freqs.weight", {1, 2, 3});
              }),
              HasSubstr("3 rope factors, expected 8"));
  EXPECT_THAT(error_with([](formats::GgufWriter& writer, const ModelConfig&) {
                writer.add_number("llama.rope.dimension_count", std::uint32_t{8});
              }),
              HasSubstr("dimension_count = 8 with heads of 16"));
  EXPECT_THAT(error_with([](formats::GgufWriter& writer, const ModelConfig&) {
                add_factors(writer, "blk.0.attn_q.bias", std::vector<float>(64));
              }),
              HasSubstr("missing blk.0.attn_k.bias [32]"));
}

}  // namespace
}  // namespace llorch::model
