#include "formats/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "formats/gguf_writer.h"
#include "formats/open.h"
#include "formats/test_gguf.h"
#include "support/test_paths.h"

namespace llorch::formats {
namespace {

using tensor::DType;
using ::testing::ElementsAre, ::testing::Pair;

FileSummary summary_of(const std::filesystem::path& path) {
  const Result<WeightFile> file = open_weights(path);
  EXPECT_TRUE(file.ok()) << (file.ok() ? "" : file.error().message);
  return file.ok() ? summarize(file.value()) : FileSummary();
}

// A file in memory whose tensors are views over `storage`.
WeightTensor view(std::string name, DType dtype, tensor::Shape shape,
                  std::span<const std::byte> bytes) {
  return {std::move(name), dtype, shape, bytes, {}};
}

TEST(Summary, ReadsAHuggingFaceFolder) {
  const FileSummary summary = summary_of(test::source_path("tests/golden/gpt2_tiny"));
  EXPECT_EQ(summary.format, FileFormat::SafeTensors);
  EXPECT_EQ(summary.architecture, "gpt2");
  EXPECT_EQ(summary.quantization, "F32");
  EXPECT_EQ(summary.num_files, 1);
  EXPECT_GT(summary.parameters, 0);
  EXPECT_TRUE(summary.context_length && summary.vocab_size && summary.embedding_length &&
              summary.num_layers && summary.num_heads && summary.head_dim);
  EXPECT_EQ(summary.num_kv_heads, summary.num_heads);
  EXPECT_EQ(*summary.head_dim * *summary.num_heads, *summary.embedding_length);
  EXPECT_FALSE(summary.tokenizer.has_value());
}

TEST(Summary, IsTheSameForEveryPackagingOfOneModel) {
  const FileSummary plain = summary_of(test::source_path("tests/golden/gpt2_tiny"));
  for (const char* variant : {"pytorch", "sharded_safetensors", "sharded_pytorch"}) {
    const FileSummary other = summary_of(test::source_path("tests/golden/gpt2_tiny") / variant);
    EXPECT_EQ(other.parameters, plain.parameters) << variant;
    EXPECT_EQ(other.context_length, plain.context_length) << variant;
    EXPECT_EQ(other.vocab_size, plain.vocab_size) << variant;
    EXPECT_EQ(other.quantization, plain.quantization) << variant;
  }
  EXPECT_EQ(summary_of(test::source_path("tests/golden/gpt2_tiny/sharded_safetensors")).num_files,
            3);
}

TEST(Summary, ReadsGgufKeysTokenizerAndMix) {
  const test::TempDir folder;
  const std::vector<std::byte> blocks(144 * 8);
  GgufWriter writer;
  writer.add_text("general.architecture", "llama");
  writer.add_text("general.name", "Tiny");
  writer.add_number<std::uint32_t>("general.file_type", 15);
  writer.add_number<std::uint32_t>("llama.context_length", 2048);
  writer.add_number<std::uint32_t>("llama.embedding_length", 256);
  writer.add_number<std::uint32_t>("llama.block_count", 3);
  writer.add_number<std::uint32_t>("llama.attention.head_count", 8);
  writer.add_number<std::uint32_t>("llama.attention.head_count_kv", 2);
  writer.add_text("tokenizer.ggml.model", "gpt2");
  writer.add_text("tokenizer.ggml.pre", "qwen2");
  const std::vector<std::string> tokens = {"a", "b", "c"};
  add_texts(writer, "tokenizer.ggml.tokens", tokens);
  writer.add_number<std::uint32_t>("tokenizer.ggml.eos_token_id", 2);
  writer.add_text("tokenizer.chat_template", "{{ x }}");
  writer.add_tensor(
      {"token_embd.weight", DType::Q4_K, {8, 256}, std::span(blocks).first(144 * 8), {}});
  writer.add_tensor({"output_norm.weight", DType::F32, {256}, std::span(blocks).first(1024), {}});
  ASSERT_TRUE(writer.write(folder / "tiny.gguf").ok());

  const FileSummary summary = summary_of(folder / "tiny.gguf");
  EXPECT_EQ(summary.format, FileFormat::Gguf);
  EXPECT_EQ(summary.architecture, "llama");
  EXPECT_EQ(summary.name, "Tiny");
  EXPECT_EQ(summary.quantization, "Q4_K_M");
  EXPECT_EQ(summary.parameters, 8 * 256 + 256);
  EXPECT_EQ(summary.tensor_bytes, 144 * 8 + 1024);
  EXPECT_EQ(summary.context_length, 2048);
  EXPECT_EQ(summary.vocab_size, 3);
  EXPECT_EQ(summary.num_layers, 3);
  EXPECT_EQ(summary.num_kv_heads, 2);
  EXPECT_EQ(summary.head_dim, 32);
  EXPECT_EQ(summary.ffn_length, std::nullopt);
  EXPECT_EQ(describe_types(summary.types), "Q4_K 89 %, F32 11 %");
  ASSERT_TRUE(summary.tokenizer.has_value());
  EXPECT_EQ(summary.tokenizer->kind, "gpt2");
  EXPECT_EQ(summary.tokenizer->pre, "qwen2");
  EXPECT_EQ(summary.tokenizer->size, 3);
  EXPECT_TRUE(summary.tokenizer->has_chat_template);
  EXPECT_THAT(summary.tokenizer->special_ids, ElementsAre(Pair("eos", 2)));
}

TEST(Summary, NamesTheMainTypeWhereTheFileDoesNotSay) {
  const std::vector<std::byte> bytes(4096);
  WeightFile file(FileFormat::SafeTensors, "x");
  ASSERT_TRUE(file.add_tensor(view("a", DType::F32, {4}, std::span(bytes).first(16))).ok());
  ASSERT_TRUE(
      file.add_tensor(view("b", DType::BF16, {1000}, std::span(bytes).subspan(16, 2000))).ok());
  const FileSummary summary = summarize(file);
  EXPECT_EQ(summary.quantization, "BF16");
  EXPECT_EQ(describe_types(summary.types), "BF16 100 %, F32 <1 %");
}

TEST(Summary, CountsSharedWeightsOnceAndBuffersNotAtAll) {
  const std::vector<std::byte> bytes(65536);
  const std::span<const std::byte> all(bytes);
  WeightFile file(FileFormat::PyTorch, "x");
  ASSERT_TRUE(file.add_tensor(view("wte.weight", DType::F32, {8, 4}, all.first(128))).ok());
  ASSERT_TRUE(file.add_tensor(view("lm_head.weight", DType::F32, {8, 4}, all.first(128))).ok());
  ASSERT_TRUE(
      file.add_tensor(view("h.0.attn.bias", DType::F32, {1, 1, 16, 16}, all.subspan(128, 1024)))
          .ok());
  ASSERT_TRUE(
      file.add_tensor(view("h.0.attn.masked_bias", DType::F32, {}, all.subspan(2048, 4))).ok());
  ASSERT_TRUE(
      file.add_tensor(view("h.0.attn.c_attn.bias", DType::F32, {12}, all.subspan(4096, 48))).ok());
  EXPECT_EQ(summarize(file).parameters, 8 * 4 + 12);
}

TEST(Summary, TakesATiedOutputStoredTwiceForOne) {
  const std::vector<std::byte> bytes(256);
  const std::span<const std::byte> all(bytes);
  WeightFile file(FileFormat::SafeTensors, "x");
  ASSERT_TRUE(
      file.add_tensor(view("model.embed_tokens.weight", DType::F32, {8, 4}, all.first(128))).ok());
  ASSERT_TRUE(file.add_tensor(view("lm_head.weight", DType::F32, {8, 4}, all.subspan(128))).ok());
  EXPECT_EQ(summarize(file).parameters, 64);
  ASSERT_TRUE(file.mutable_metadata().add("config.tie_word_embeddings", true).ok());
  EXPECT_EQ(summarize(file).parameters, 32);
  EXPECT_EQ(summarize(file).vocab_size, 8);
}

TEST(Summary, SurvivesAbsurdNumbers) {
  const std::vector<std::byte> bytes(8);
  WeightFile file(FileFormat::PyTorch, "x");
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  for (const char* name : {"a", "b"}) {
    // One element repeated: strides of zero.
    ASSERT_TRUE(
        file.add_tensor(
                {name, DType::F32, {huge}, std::span(bytes).subspan(*name == 'a' ? 0 : 4, 4), {0}})
            .ok());
  }
  ASSERT_TRUE(file.mutable_metadata().add("config.num_attention_heads", std::int64_t{0}).ok());
  ASSERT_TRUE(file.mutable_metadata().add("config.hidden_size", std::int64_t{-5}).ok());
  ASSERT_TRUE(file.mutable_metadata().add("config.n_layer", std::string("many")).ok());
  const FileSummary summary = summarize(file);
  EXPECT_EQ(summary.parameters, huge);
  EXPECT_EQ(summary.num_heads, std::nullopt);
  EXPECT_EQ(summary.embedding_length, std::nullopt);
  EXPECT_EQ(summary.num_layers, std::nullopt);
}

TEST(Summary, LooksForTheTokenizerBesideTheWeights) {
  const test::TempDir folder;
  std::filesystem::copy(test::source_path("tests/golden/gpt2_tiny/model.safetensors"),
                        folder / "model.safetensors");
  std::ofstream(folder / "tokenizer.json")
      << R"({"model":{"type":"BPE","vocab":{"a":0,"b":1}},"added_tokens":[{"id":2,"content":"<s>"},{"id":1}]})";
  std::ofstream(folder / "tokenizer_config.json") << R"({"chat_template":"{{ x }}"})";
  for (const std::filesystem::path& path : {folder.path(), folder / "model.safetensors"}) {
    const FileSummary summary = summary_of(path);
    ASSERT_TRUE(summary.tokenizer.has_value());
    EXPECT_EQ(summary.tokenizer->source, "tokenizer.json");
    EXPECT_EQ(summary.tokenizer->kind, "BPE");
    EXPECT_EQ(summary.tokenizer->size, 3);
    EXPECT_TRUE(summary.tokenizer->has_chat_template);
  }
  std::ofstream(folder / "tokenizer.json") << "{ broken";
  const FileSummary summary = summary_of(folder.path());
  ASSERT_TRUE(summary.tokenizer.has_value());
  EXPECT_EQ(summary.tokenizer->kind, "");
  EXPECT_EQ(summary.tokenizer->size, 0);
}

TEST(Summary, CountsRealFilesAsTheirNamesSay) {
  const std::optional<std::filesystem::path> weights = test::data_path("weights");
  if (!weights) GTEST_SKIP() << "no real weights";
  EXPECT_EQ(summary_of(*weights / "minimind2-small/minimind2-small-Q4_K_M.gguf").quantization,
            "Q4_K_M");
  const FileSummary gguf = summary_of(*weights / "minimind2-small/minimind2-small-Q4_K_M.gguf");
  const FileSummary folder = summary_of(*weights / "minimind2-small/hf");
  EXPECT_EQ(folder.quantization, "F16");
  EXPECT_EQ(folder.parameters, gguf.parameters);
  EXPECT_EQ(folder.context_length, gguf.context_length);
  EXPECT_EQ(folder.num_kv_heads, gguf.num_kv_heads);
  EXPECT_EQ(folder.vocab_size, gguf.vocab_size);
  EXPECT_EQ(folder.ffn_length, gguf.ffn_length);
  ASSERT_TRUE(folder.tokenizer && gguf.tokenizer);
  EXPECT_EQ(folder.tokenizer->size, gguf.tokenizer->size);
  EXPECT_TRUE(folder.tokenizer->has_chat_template && gguf.tokenizer->has_chat_template);
}

}  // namespace
}  // namespace llorch::formats
