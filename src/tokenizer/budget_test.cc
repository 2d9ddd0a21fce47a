// Tokenizer files that make a text cost more than it should: an error soon, never a hang.
#include "tokenizer/budget.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/test_paths.h"
#include "tokenizer/load.h"
#include "tokenizer/test_tokenizers.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

using testing::HasSubstr;

std::string with(std::string json, std::string_view from, std::string_view to) {
  const std::size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return json.replace(at, from.size(), to);
}

constexpr std::string_view kPreTokenizer =
    R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})";

std::string with_split(std::string_view expression) {
  return with(
      test::byte_level_json(), kPreTokenizer,
      fmt::format(
          R"({{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":{{"Regex":{}}},"behavior":"Isolated","invert":false}},)"
          R"({{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}}]}})",
          test::json_quoted(expression)));
}

std::string message_of(const Result<std::vector<TokenId>>& ids) {
  return ids.ok() ? "" : ids.error().message;
}

EncodeOptions within(std::chrono::milliseconds time) {
  return {.limit = {.deadline = std::chrono::steady_clock::now() + time}};
}

TEST(EncodeBudget, AHostilePatternIsNamed) {
  const Tokenizer tokenizer = test::load_json_text(with_split("a*a*b|a"));
  EXPECT_TRUE(tokenizer.encode("hello aaab").ok());
  const auto refused = tokenizer.encode(std::string(4000, 'a'));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::InvalidArgument);
  EXPECT_THAT(refused.error().message,
              HasSubstr("the tokenizer's own pattern \"a*a*b|a\" takes too long on this text"));
}

TEST(EncodeBudget, ANormalizersPatternIsBoundedToo) {
  const Tokenizer tokenizer = test::load_json_text(
      with(test::byte_level_json(), R"("normalizer":null)",
           R"("normalizer":{"type":"Replace","pattern":{"Regex":"a*a*b|a"},"content":"x"})"));
  const auto refused = tokenizer.encode(std::string(4000, 'a'));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("\"a*a*b|a\""));
}

TEST(EncodeBudget, TheClockAndAStopEndAnEncoding) {
  const Tokenizer tokenizer = test::load_json_text(with_split("a*[bc]"));
  const std::string text(1'000'000, 'a');  // a trillion steps
  const auto late = tokenizer.encode(text, within(std::chrono::milliseconds(50)));
  ASSERT_FALSE(late.ok());
  EXPECT_THAT(late.error().message, HasSubstr("takes too long"));
  std::stop_source stop;
  std::jthread stopper([&] {
    std::this_thread::yield();
    stop.request_stop();
  });
  const auto stopped = tokenizer.encode(text, {.limit = {.stop = stop.get_token()}});
  ASSERT_FALSE(stopped.ok());
  EXPECT_TRUE(stopped.error().code == ErrorCode::Cancelled ||
              stopped.error().code == ErrorCode::InvalidArgument);
}

// Pieces and added tokens of 4,096 letters make each position of the text cost as much.
TEST(EncodeBudget, LongPiecesAreBounded) {
  const std::string text(1'000'000, 'a');
  std::string pieces = R"(["<unk>",0],["a",-1])";
  for (std::size_t length = 4096; length > 4000; --length)
    pieces += fmt::format(R"(,["{}",-{}])", std::string(length, 'a'), length);
  const Tokenizer unigram = test::load_json_text(fmt::format(
      R"({{"added_tokens":[],"normalizer":null,"pre_tokenizer":null,"post_processor":null,"decoder":null,)"
      R"("model":{{"type":"Unigram","unk_id":0,"vocab":[{}]}}}})",
      pieces));
  EXPECT_TRUE(unigram.encode(text.substr(0, 4'000)).ok());
  EXPECT_FALSE(unigram.encode(text, within(std::chrono::milliseconds(300))).ok());

  const Tokenizer added = test::load_json_text(
      with(test::byte_level_json(), R"({"id":264,"content":"<tool>","special":false})",
           fmt::format(R"({{"id":264,"content":"{}b","special":false}})", std::string(4095, 'a'))));
  EXPECT_TRUE(added.encode(text.substr(0, 4'000)).ok());
  EXPECT_FALSE(added.encode(text, within(std::chrono::milliseconds(300))).ok());
}

// A megabyte each of what is hardest for honest tokenizers.
std::vector<std::string> hard_texts(std::size_t bytes) {
  std::vector<std::string> texts;
  for (const std::string_view unit : {"a", "A", " ", "\n", "1", "'", "!", "é", "漢", "\u0300",
                                      "\u0300\u0323", "Aa", " \n", "▁", "🙂"}) {
    std::string text;
    while (text.size() < bytes) text += unit;
    texts.push_back(std::move(text));
  }
  std::mt19937 random(5);
  std::string any;
  while (any.size() < bytes) {
    const auto c = static_cast<char32_t>(1 + random() % 0x10FFFF);
    if (c < 0xD800 || c > 0xDFFF) append_utf8(any, c);
  }
  texts.push_back(std::move(any));
  return texts;
}

TEST(EncodeBudget, HonestTokenizersNeverReachIt) {
  for (const std::string_view name :
       {"byte_level", "chat", "metaspace", "sentencepiece", "splits", "unigram", "wordpiece"}) {
    const Tokenizer tokenizer =
        load_tokenizer(llorch::test::source_path(
                           fmt::format("tests/golden/tokenizer/{}.tokenizer.json", name)))
            .take();
    for (const std::string& text : hard_texts(200'000)) {
      const auto ids = tokenizer.encode(text);
      EXPECT_TRUE(ids.ok()) << name << " " << text.substr(0, 8) << ": " << message_of(ids);
    }
  }
}

// Expressions of GPT-4o, DeepSeek and StarCoder, as their files have them.
TEST(EncodeBudget, HonestExpressionsNeverReachIt) {
  constexpr std::string_view kExpressions[] = {
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
      R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([一-龥぀-ゟ゠-ヿ]+)",
      R"(\d|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
  };
  for (const std::string_view expression : kExpressions) {
    const Tokenizer tokenizer = test::load_json_text(with_split(expression));
    for (const std::string& text : hard_texts(1'000'000)) {
      const auto ids = tokenizer.encode(text);
      EXPECT_TRUE(ids.ok()) << expression << " " << text.substr(0, 8) << ": " << message_of(ids);
    }
  }
}

TEST(EncodeBudget, RealTokenizersNeverReachIt) {
  const auto folder = llorch::test::data_path("tokenizers");
  if (!folder) GTEST_SKIP() << "real data absent: tokenizers";
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    const Tokenizer tokenizer = load_tokenizer(entry.path()).take();
    for (const std::string& text : hard_texts(1'000'000)) {
      const auto ids = tokenizer.encode(text);
      EXPECT_TRUE(ids.ok()) << entry.path() << " " << text.substr(0, 8) << ": " << message_of(ids);
    }
  }
}

TEST(EncodeBudget, AThousandRulesAreNoTokenizer) {
  std::string rules;
  for (int i = 0; i < 1000; ++i)
    rules +=
        fmt::format("{}{}", i == 0 ? "" : ",", R"({"type":"Digits","individual_digits":true})");
  const std::string json =
      with(test::byte_level_json(), kPreTokenizer,
           fmt::format(R"({{"type":"Sequence","pretokenizers":[{}]}})", rules));
  const auto loaded = from_tokenizer_json({.tokenizer_json = json});
  ASSERT_FALSE(loaded.ok());
  EXPECT_THAT(loaded.error().message, HasSubstr("at most"));
}

TEST(EncodeBudget, WhatIsSpentStaysSpent) {
  EncodeBudget budget(0);
  EXPECT_TRUE(budget.spend(1000));
  EXPECT_TRUE(budget.status().ok());
  EXPECT_FALSE(budget.spend(std::size_t{1} << 40));
  EXPECT_FALSE(budget.spend(1));
  EXPECT_TRUE(budget.is_spent());
  budget.fail("another reason");
  EXPECT_THAT(budget.status().error().message, HasSubstr("steps"));
}

}  // namespace
}  // namespace llorch::tokenizer
