#include "worker/fill_in_middle.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "support/test_paths.h"
#include "tokenizer/load.h"

namespace llorch::worker {
namespace {

using ::testing::ElementsAre;

TEST(FillInMiddle, PutsTheTextsInTheModelsOrder) {
  const std::vector<tokenizer::TokenId> begin = {1};
  const std::vector<tokenizer::TokenId> before = {10, 11};
  const std::vector<tokenizer::TokenId> after = {20};
  EXPECT_THAT(fill_prompt({.prefix = 2, .suffix = 3, .middle = 4}, begin, before, after),
              ElementsAre(1, 2, 10, 11, 3, 20, 4));
  EXPECT_THAT(fill_prompt({.prefix = 2, .suffix = 3, .suffix_first = true}, begin, before, after),
              ElementsAre(1, 3, 20, 2, 10, 11));
}

TEST(FillInMiddle, AModelWithoutTheTokensHasNone) {
  const auto tokenizer =
      tokenizer::load_tokenizer(test::source_path("tests/golden/tokenizer/chat.tokenizer.json"));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_FALSE(find_fill_tokens({}, *tokenizer).has_value());
}

TEST(FillInMiddle, AFileMayNameThemByKeys) {
  const auto tokenizer =
      tokenizer::load_tokenizer(test::source_path("tests/golden/tokenizer/chat.tokenizer.json"));
  ASSERT_TRUE(tokenizer.ok());
  for (const auto& [prefix, suffix, middle] :
       {std::array{"fim_pre", "fim_suf", "fim_mid"}, std::array{"prefix", "suffix", "middle"}}) {
    formats::Metadata metadata;
    const auto add = [&](std::string_view name, std::uint64_t id) {
      ASSERT_TRUE(metadata.add(fmt::format("tokenizer.ggml.{}_token_id", name), id).ok());
    };
    add(prefix, 7);
    add(suffix, 8);
    EXPECT_FALSE(find_fill_tokens(metadata, *tokenizer).has_value()) << "half of them is no use";
    add(middle, 9);
    const auto tokens = find_fill_tokens(metadata, *tokenizer);
    ASSERT_TRUE(tokens.has_value()) << prefix;
    EXPECT_EQ(tokens->prefix, 7);
    EXPECT_EQ(tokens->suffix, 8);
    EXPECT_EQ(tokens->middle, 9);
    EXPECT_FALSE(tokens->suffix_first);
  }
  formats::Metadata outside;
  for (const char* name : {"fim_pre", "fim_suf", "fim_mid"}) {
    const auto id = static_cast<std::uint64_t>(tokenizer->vocab_size());
    ASSERT_TRUE(outside.add(fmt::format("tokenizer.ggml.{}_token_id", name), id).ok());
  }
  EXPECT_FALSE(find_fill_tokens(outside, *tokenizer).has_value()) << "no such token";
}

TEST(FillInMiddle, RealVocabulariesHaveTheirs) {
  const auto folder = test::data_path("tokenizers/qwen2_5");
  if (!folder) GTEST_SKIP() << "no tokenizers: set LLORCH_TEST_DATA";
  const auto tokenizer = tokenizer::load_tokenizer(*folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto tokens = find_fill_tokens({}, *tokenizer);
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->prefix, tokenizer->find_piece("<|fim_prefix|>"));
  EXPECT_EQ(tokens->middle, tokenizer->find_piece("<|fim_middle|>"));
}

}  // namespace
}  // namespace llorch::worker
