#include "tokenizer/size_estimate.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/test_paths.h"

namespace llorch::tokenizer {
namespace {

TokenizerSize measure_text(std::string_view name, std::string_view text) {
  const llorch::test::TempDir folder;
  std::ofstream(folder / name, std::ios::binary) << text;
  const Result<TokenizerSize> size = measure_tokenizer(folder.path());
  EXPECT_TRUE(size.ok()) << size.error().message;
  return size.ok() ? *size : TokenizerSize{};
}

TEST(SizeEstimate, CountsPiecesAndMergesWrittenAsOneString) {
  const TokenizerSize size = measure_text(
      "tokenizer.json",
      R"({"added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0, "\"": 1, "\\": 2, "ab": 3},
          "merges": ["a b", "\" \\"]}})");
  EXPECT_EQ(size.pieces, 4);
  EXPECT_EQ(size.merges, 2);
}

TEST(SizeEstimate, CountsMergesWrittenAsPairs) {
  const TokenizerSize size = measure_text(
      "tokenizer.json",
      R"({"model":{"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"],["ab","a"],["b","b"]]}})");
  EXPECT_EQ(size.pieces, 3);
  EXPECT_EQ(size.merges, 3);
}

TEST(SizeEstimate, UnigramHasNoMerges) {
  const TokenizerSize size = measure_text(
      "tokenizer.json", R"({"model":{"type":"Unigram","vocab":[["a",-1.5],["b",-2]]}})");
  EXPECT_EQ(size.pieces, 2);
  EXPECT_EQ(size.merges, 0);
}

TEST(SizeEstimate, CountsThePiecesOfASentencePieceModel) {
  // Two pieces of 3 and 130 bytes, then a field of another kind.
  std::string model = "\x0A\x03xyz\x0A";
  model += "\x82\x01";
  model += std::string(130, 'p') + "\x12\x01q";
  EXPECT_EQ(measure_text("tokenizer.model", model).pieces, 2);
  EXPECT_EQ(measure_text("tokenizer.model", "\x0A\xFF\xFF\xFF\xFF\x7F short").pieces, 0);
}

TEST(SizeEstimate, AFolderWithoutATokenizerIsAnError) {
  const llorch::test::TempDir folder;
  EXPECT_EQ(measure_tokenizer(folder.path()).error().code, ErrorCode::NotFound);
}

TEST(SizeEstimate, CountsRealTokenizers) {
  struct Known {
    std::string_view name;
    std::int64_t pieces, merges;
  };
  for (const Known& known : {Known{"gpt2", 50257, 50000},
                             {"llama3_1", 128000, 280147},
                             {"qwen2_5", 151643, 151387},
                             {"tinyllama_llama2", 32000, 61249}}) {
    const auto folder =
        llorch::test::data_path(std::string("tokenizers/") + std::string(known.name));
    if (!folder) GTEST_SKIP() << "no tokenizers";
    const Result<TokenizerSize> size = measure_tokenizer(*folder);
    ASSERT_TRUE(size.ok()) << size.error().message;
    EXPECT_EQ(size->pieces, known.pieces) << known.name;
    EXPECT_EQ(size->merges, known.merges) << known.name;
  }
}

}  // namespace
}  // namespace llorch::tokenizer
