#include "tokenizer/pretokenize.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <stop_token>
#include <string>
#include <vector>

#include "tokenizer/gguf_pre.h"
#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

class Collector : public WordSink {
 public:
  void word(std::string_view word) override { words.emplace_back(word); }
  std::vector<std::string> words;
};

std::vector<std::string> split(const SplitRule& rule, std::string_view text) {
  Collector collector;
  EncodeBudget budget(text.size());
  const Status status = PreTokenizer({rule}).split(text, true, budget, collector);
  EXPECT_TRUE(status.ok());
  return collector.words;
}

using Words = std::vector<std::string>;

// Text of the kinds of characters that the expressions tell apart, and any other character now and
// then.
std::string random_text(std::mt19937& random) {
  static const std::u32string common =
      U"aZéд你ſ'''sStTlLrReEvVdDmM  "
      U"\t\n\r\u0085\u00A0\u2028\u3000\u180E129½٣.,!?-_\"#\u0301\u200D🙂";
  std::string text;
  const std::size_t length = 1 + random() % 40;
  for (std::size_t i = 0; i < length; ++i) {
    char32_t c = common[random() % common.size()];
    if (random() % 4 == 0) {
      do {
        c = static_cast<char32_t>(random() % (random() % 2 == 0 ? 0x3000U : 0x110000U));
      } while (c >= 0xD800 && c <= 0xDFFF);
    }
    append_utf8(text, c);
  }
  return text;
}

void expect_same_words(std::string_view expression, std::uint32_t seed) {
  const SplitRule by_hand = make_expression_rule(expression).take();
  ASSERT_NE(by_hand.kind, SplitRule::Kind::Expression);
  const SplitRule by_regex = make_regex_rule(expression, SplitBehavior::Isolated, false).take();
  std::mt19937 random(seed);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = random_text(random);
    ASSERT_EQ(split(by_hand, text), split(by_regex, text)) << "seed " << seed << ": " << text;
  }
}

TEST(HandWrittenWords, AreThoseOfGpt2sExpression) {
  expect_same_words(kGpt2Expression, 1);
}
TEST(HandWrittenWords, AreThoseOfLlama3sExpression) {
  expect_same_words(kLlama3Expression, 2);
}
TEST(HandWrittenWords, AreThoseOfQwen2sExpression) {
  expect_same_words(kQwen2Expression, 3);
}

TEST(HandWrittenWords, AgreeOnEveryCharacter) {
  const SplitRule by_hand = make_expression_rule(kLlama3Expression).take();
  const SplitRule by_regex =
      make_regex_rule(kLlama3Expression, SplitBehavior::Isolated, false).take();
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    text += 'a';
    append_utf8(text, c);
    text += " 1";
    if (text.size() < 60000) continue;
    ASSERT_EQ(split(by_hand, text), split(by_regex, text))
        << "around U+" << std::hex << static_cast<std::uint32_t>(c);
    text.clear();
  }
}

TEST(PreTokenizer, KeepsDigitsAndContractionsAsModelsWereTrained) {
  const SplitRule llama3 = make_expression_rule(kLlama3Expression).take();
  EXPECT_EQ(split(llama3, "I'VE 12345 tests."),
            (Words{"I", "'VE", " ", "123", "45", " tests", "."}));
  const SplitRule gpt2 = make_expression_rule(kGpt2Expression).take();
  EXPECT_EQ(split(gpt2, "I've 12345  tests."), (Words{"I", "'ve", " 12345", " ", " tests", "."}));
}

TEST(PreTokenizer, SplitsAsTheBehaviorSays) {
  const auto with = [](SplitBehavior behavior, bool inverted = false) {
    return split(make_regex_rule("-", behavior, inverted).take(), "-a--b-");
  };
  EXPECT_EQ(with(SplitBehavior::Removed), (Words{"a", "b"}));
  EXPECT_EQ(with(SplitBehavior::Removed, true), (Words{"-", "-", "-", "-"}));
  EXPECT_EQ(with(SplitBehavior::Isolated), (Words{"-", "a", "-", "-", "b", "-"}));
  EXPECT_EQ(with(SplitBehavior::MergedWithPrevious), (Words{"-", "a-", "-", "b-"}));
  EXPECT_EQ(with(SplitBehavior::MergedWithNext), (Words{"-a", "-", "-b", "-"}));
  EXPECT_EQ(with(SplitBehavior::Contiguous), (Words{"-", "a", "--", "b", "-"}));
}

TEST(PreTokenizer, SplitsAtMatchesOfNothing) {
  const SplitRule rule =
      make_regex_rule(R"((?=(\d{3})+(?!\d)))", SplitBehavior::Isolated, false).take();
  EXPECT_EQ(split(rule, "1234567"), (Words{"1", "234", "567"}));
}

// As the library's Python package splits them (tokenizers 0.23).
TEST(Regex, WordsAreThoseOfOniguruma) {
  const auto split_by = [](std::string_view expression, std::string_view text) {
    return split(make_regex_rule(expression, SplitBehavior::Removed, /*inverted=*/true).take(),
                 std::string(text));
  };
  // A letter with a mark, raised and broken digits of Latin-1 and of others, a circled letter, a
  // joiner.
  constexpr std::string_view kText = "e\u0301x_1 \u00B2\u00BD \u2079\u2153 \u24D0 a\u200Cb";
  EXPECT_EQ(split_by(R"(\w+)", kText), (Words{"e\u0301x_1", "\u00B2\u00BD", "\u24D0", "a", "b"}));
  EXPECT_EQ(split_by(R"([\w-]+)", "e\u0301-\u2079"), (Words{"e\u0301-"}));
  EXPECT_EQ(split_by(R"(\W+)", "e\u0301 \u2079"), (Words{" \u2079"}));
  EXPECT_EQ(
      split(make_regex_rule(R"(\b)", SplitBehavior::Isolated, false).take(), "e\u0301x \u2079"),
      (Words{"e\u0301x", " \u2079"}));
  EXPECT_NE(Regex::compile(R"([\W_])").error().message.find("\\W within a character class"),
            std::string::npos);
}

TEST(Regex, RefusesWhatItCannotDo) {
  EXPECT_EQ(Regex::compile("[a").error().code, ErrorCode::Unsupported);
  const Error error = Regex::compile(R"([\p{L}&&[^a]])").error();
  EXPECT_NE(error.message.find("&&"), std::string::npos) << error.message;
}

TEST(Regex, GivesUpOnTextsThatAreTooHard) {
  // Backtracking without end, matches that each scan the rest, and starts that each do.
  for (const std::string_view expression : {"(a+)+[bc]", "a*a*b|a", "a*a*[bc]|a", "(?:a|a)*[bc]",
                                            "(a*)*[bc]", "a*[bc]", "(?<=a*?)b|a"}) {
    const Result<Regex> regex = Regex::compile(expression);
    if (!regex.ok()) continue;  // Lookbehind of any length.
    const std::string text(300'000, 'a');
    EncodeBudget budget(text.size(),
                        {.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1)});
    const Status status = regex->for_each_match(text, budget, [](std::size_t, std::size_t) {});
    if (status.ok()) continue;  // Some PCRE2 sees through.
    EXPECT_EQ(status.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(status.error().message.find("the tokenizer's own pattern"), std::string::npos)
        << status.error().message;
    EXPECT_NE(status.error().message.find(expression), std::string::npos) << status.error().message;
  }
  const Regex regex = Regex::compile("a*a*b|a").take();
  EncodeBudget budget(4000);
  const Status status =
      regex.for_each_match(std::string(4000, 'a'), budget, [](std::size_t, std::size_t) {});
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("steps"), std::string::npos) << status.error().message;
}

// Why these are compiled without the budget's callouts: with them, none runs out of steps on 200 KB
// of whatever makes each of their parts scan and give back. One that is not linear would take 200
// times its budget.
TEST(Regex, PublishedExpressionsAreLinear) {
  const std::vector<std::string_view> published = published_expressions();
  EXPECT_GE(published.size(), 8U);
  for (const std::string_view expression : published) {
    const Regex regex = Regex::compile(expression).take();
    for (const std::string unit : {"a", "A", " ", "\n", " \n", "1", "!", "'", "\u00ba", "\u0301",
                                   "aA", "a ", "一", "!\n", "/", "\u0001", "A\u0301", " !"}) {
      std::string text;
      while (text.size() < 200'000) text += unit;
      for (const char last : {'a', '1', '\x02', ' '}) {
        EncodeBudget budget(text.size());
        const Status status =
            regex.for_each_match(text + last, budget, [](std::size_t, std::size_t) {});
        EXPECT_TRUE(status.ok()) << expression << " on " << unit << ": " << status.error().message;
      }
    }
  }
}

TEST(Regex, AStopEndsAMatchThatIsSought) {
  std::stop_source stop;
  stop.request_stop();
  EncodeBudget budget(4000, {.stop = stop.get_token()});
  const Regex regex = Regex::compile("a*a*b|a").take();
  const Status status =
      regex.for_each_match(std::string(4000, 'a'), budget, [](std::size_t, std::size_t) {});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::Cancelled);
}

}  // namespace
}  // namespace llorch::tokenizer
