#include "worker/test_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "formats/test_safetensors.h"
#include "support/test_paths.h"

namespace llorch::test {
namespace {

constexpr int kTokens = 744;
constexpr int kVocab = 752;  // eight more than the tokenizer has: padding, as real models have it
constexpr int kEnd = 737;    // <|im_end|>

class TensorMaker : public formats::TestTensors {
 public:
  void add(const std::string& name, const tensor::Shape& shape, float scale, float offset = 0) {
    for (float& value : TestTensors::add("transformer." + name, shape))
      value = offset + scale * uniform();
  }

 private:
  float uniform() { return static_cast<float>(random_() >> 8) * 0x1.0p-23F - 1.0F; }

  std::mt19937 random_{20261};
};

void add_layer(TensorMaker& maker, int layer, std::int64_t hidden) {
  const std::string prefix = fmt::format("h.{}.", layer);
  for (const char* norm : {"ln_1", "ln_2"}) {
    maker.add(fmt::format("{}{}.weight", prefix, norm), {hidden}, 0.1F, 1.0F);
    maker.add(fmt::format("{}{}.bias", prefix, norm), {hidden}, 0.05F);
  }
  const std::tuple<const char*, std::int64_t, std::int64_t> kLinears[] = {
      {"attn.c_attn", hidden, 3 * hidden},
      {"attn.c_proj", hidden, hidden},
      {"mlp.c_fc", hidden, 4 * hidden},
      {"mlp.c_proj", 4 * hidden, hidden}};
  for (const auto& [name, in, out] : kLinears) {
    maker.add(fmt::format("{}{}.weight", prefix, name), {in, out}, 0.08F);
    maker.add(fmt::format("{}{}.bias", prefix, name), {out}, 0.02F);
  }
}

void write(const std::filesystem::path& path, std::string_view text) {
  const Status written = base::write_file_atomically(path, text);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

}  // namespace

void write_test_model(const std::filesystem::path& folder, const TestModelSize& size) {
  std::filesystem::create_directories(folder);
  TensorMaker maker;
  const std::int64_t hidden = size.hidden;
  maker.add("wte.weight", {kVocab, hidden}, 0.3F);
  // The row of the end token is nothing, so its logit is 0 and another is always larger.
  std::fill_n(maker.last().begin() + kEnd * hidden, hidden, 0.0F);
  for (auto at = maker.last().begin() + kTokens * hidden; at != maker.last().end(); ++at)
    *at *= size.padding;
  maker.add("wpe.weight", {size.context, hidden}, 0.3F);
  for (int layer = 0; layer < size.layers; ++layer) add_layer(maker, layer, hidden);
  maker.add("ln_f.weight", {hidden}, 0.1F, 1.0F);
  maker.add("ln_f.bias", {hidden}, 0.05F);
  formats::write_safetensors(folder / "model.safetensors", maker.all(), {{"format", "pt"}});
  write(folder / "config.json",
        fmt::format(
            R"({{"model_type":"gpt2","activation_function":"gelu_new","layer_norm_epsilon":1e-05,
"n_embd":{},"n_head":{},"n_layer":{},"n_positions":{},"vocab_size":{},"n_inner":null,"tie_word_embeddings":true,
"bos_token_id":735,"eos_token_id":{}}})",
            size.hidden, size.heads, size.layers, size.context, kVocab, kEnd));
  write(folder / "generation_config.json", fmt::format(R"({{"eos_token_id":{}}})", kEnd));
  write(
      folder / "tokenizer_config.json",
      R"({"bos_token":"<|begin|>","eos_token":"<|im_end|>","chat_template":"{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if tools %}<tool>{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"})");
  const Result<std::string> tokenizer = base::read_text_file(
      source_path("tests/golden/tokenizer/chat.tokenizer.json"), std::size_t{1} << 20);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  json::Value edited = json::parse(*tokenizer).value();
  edited.get_object()["normalizer"] = nullptr;  // so that every text comes back as it was
  write(folder / "tokenizer.json", json::serialize(edited));
}

}  // namespace llorch::test
