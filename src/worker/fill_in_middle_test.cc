#include "worker/fill_in_middle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_FALSE(find_fill_tokens(*tokenizer).has_value());
}

TEST(FillInMiddle, RealVocabulariesHaveTheirs) {
  const auto folder = test::data_path("tokenizers/qwen2_5");
  if (!folder) GTEST_SKIP() << "no tokenizers: set LLORCH_TEST_DATA";
  const auto tokenizer = tokenizer::load_tokenizer(*folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto tokens = find_fill_tokens(*tokenizer);
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->prefix, tokenizer->find_piece("<|fim_prefix|>"));
  EXPECT_EQ(tokens->middle, tokenizer->find_piece("<|fim_middle|>"));
}

}  // namespace
}  // namespace llorch::worker
