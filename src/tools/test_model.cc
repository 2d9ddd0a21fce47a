#include "tools/test_model.h"

#include <limits>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "formats/test_safetensors.h"
#include "support/test_paths.h"

namespace llorch::tools {
namespace {

constexpr std::int64_t kVocab = 740, kWidth = 256, kInner = 512, kKvWidth = 128;

class Weights : public formats::TestTensors {
 public:
  void add(std::string name, const tensor::Shape& shape) {
    const bool is_norm = shape.rank() == 1;
    for (float& value : TestTensors::add(std::move(name), shape))
      value = is_norm ? 1.0F + normal_(random_) : normal_(random_);
  }

 private:
  std::mt19937 random_{5};
  std::normal_distribution<float> normal_{0, 0.08F};
};

void write(const std::filesystem::path& path, const std::string& text) {
  const Status written = base::write_file_atomically(path, text);
  CHECK(written.ok(), written.error().message);
}

}  // namespace

void write_test_model(const std::filesystem::path& folder, const TestModelOptions& options) {
  std::filesystem::create_directories(folder);
  Weights weights;
  weights.add("model.embed_tokens.weight", {kVocab, kWidth});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    weights.add(prefix + "input_layernorm.weight", {kWidth});
    weights.add(prefix + "self_attn.q_proj.weight", {kWidth, kWidth});
    weights.add(prefix + "self_attn.k_proj.weight", {kKvWidth, kWidth});
    weights.add(prefix + "self_attn.v_proj.weight", {kKvWidth, kWidth});
    weights.add(prefix + "self_attn.o_proj.weight", {kWidth, kWidth});
    weights.add(prefix + "post_attention_layernorm.weight", {kWidth});
    weights.add(prefix + "mlp.gate_proj.weight", {kInner, kWidth});
    weights.add(prefix + "mlp.up_proj.weight", {kInner, kWidth});
    if (options.has_nan && layer == 1)
      weights.last()[300] = std::numeric_limits<float>::quiet_NaN();
    weights.add(prefix + "mlp.down_proj.weight", {kWidth, kInner});
  }
  weights.add("model.norm.weight", {kWidth});
  weights.add("lm_head.weight", {kVocab, kWidth});
  formats::write_safetensors(folder / "model.safetensors", weights.all());
  write(folder / "config.json",
        R"({"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512,
            "vocab_size": 740, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"})");
  const auto tokenizer = test::source_path("tests/golden/tokenizer/byte_level.tokenizer.json");
  write(folder / "tokenizer.json", base::read_text_file(tokenizer, std::size_t{16} << 20).take());
  write(folder / "tokenizer_config.json",
        json::serialize(json::Object{{"chat_template", options.chat_template}}));
}

}  // namespace llorch::tools
