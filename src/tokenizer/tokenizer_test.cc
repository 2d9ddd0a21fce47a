#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/test_paths.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/load.h"
#include "tokenizer/streaming_decoder.h"
#include "tokenizer/test_tokenizers.h"
#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

std::string random_utf8(std::mt19937& random, std::size_t characters) {
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) {
    char32_t c = 0;
    do {
      const std::uint32_t limits[] = {0x80, 0x800, 0x3000, 0x110000};
      c = static_cast<char32_t>(random() % limits[random() % 4]);
    } while (c >= 0xD800 && c <= 0xDFFF);
    append_utf8(text, c);
  }
  return text;
}

TEST(Tokenizer, MergesInTheOrderOfTheRanks) {
  const Tokenizer tokenizer = test::load_json_text(test::byte_level_json());
  EXPECT_EQ(tokenizer.encode("hello hello").take(), (Ids{259, 260}));
  EXPECT_EQ(tokenizer.encode("hellhe").take(), (Ids{258, 256}));
}

TEST(Tokenizer, RoundTripsAll256Bytes) {
  const Tokenizer tokenizer = test::load_json_text(test::byte_level_json());
  std::string text;
  for (char32_t c = 0; c < 0x800; ++c) append_utf8(text, c);
  const Ids ids = tokenizer.encode(text).take();
  EXPECT_EQ(tokenizer.decode(ids), text);
}

TEST(Tokenizer, RoundTripsAnyUtf8) {
  const Tokenizer tokenizer = test::load_json_text(test::byte_level_json());
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_utf8(random, 1 + random() % 60);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text).take()), text) << "seed 7, text " << i;
  }
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  const Tokenizer tokenizer = test::load_json_text(test::byte_level_json());
  const std::vector<std::string> bad = {"ab\xFF",           "\xC0\x80",  "\xED\xA0\x80",
                                        "\xF4\x90\x80\x80", "a\xE4\xBD", "\x80"};
  for (const std::string& text : bad) {
    const Result<Ids> ids = tokenizer.encode(text);
    ASSERT_FALSE(ids.ok());
    EXPECT_EQ(ids.error().code, ErrorCode::InvalidArgument);
    EXPECT_NE(ids.error().message.find("not UTF-8 at byte"), std::string::npos);
  }
}

TEST(Tokenizer, DoesNotLetTextForgeSpecialTokens) {
  const Tokenizer tokenizer = test::load_json_text(test::byte_level_json());
  const std::string text = "a<|im_start|><tool>";
  const Ids plain = tokenizer.encode(text).take();
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 262), 0);
  EXPECT_EQ(plain.back(), 264);  // not special: always recognised
  EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}).take(), (Ids{'a', 262, 264}));
  EXPECT_EQ(tokenizer.decode(plain), text);
}

TEST(Tokenizer, KnowsItsSpecialTokens) {
  const std::string json = test::byte_level_json();
  const Tokenizer tokenizer =
      from_tokenizer_json(
          {.tokenizer_json = json,
           .tokenizer_config =
               R"({"bos_token":{"content":"<|im_start|>"},"eos_token":"<|end|>","add_bos_token":true,)"
               R"("chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]})",
           .generation_config = R"({"eos_token_id":[5,999999]})"})
          .take();
  EXPECT_EQ(tokenizer.bos(), 262);
  EXPECT_EQ(tokenizer.eos(), 261);
  EXPECT_EQ(Ids(tokenizer.end_ids().begin(), tokenizer.end_ids().end()), (Ids{5, 261}));
  EXPECT_TRUE(tokenizer.is_end(261));
  EXPECT_FALSE(tokenizer.is_end(262));
  EXPECT_EQ(tokenizer.encode("hello", {.add_special = true}).take(), (Ids{262, 259}));
  EXPECT_EQ(tokenizer.vocab_size(), 265);
  EXPECT_EQ(tokenizer.num_used_ids(), 265);
  EXPECT_EQ(tokenizer.piece(263), "");  // a hole in the ids
  EXPECT_EQ(tokenizer.piece(260), " hello");
  EXPECT_EQ(*tokenizer.chat_template("tool_use"), "B");
  EXPECT_EQ(tokenizer.chat_template("none"), nullptr);
  EXPECT_EQ(tokenizer.decode(Ids{262, 259, 261}), "hello");
  EXPECT_EQ(tokenizer.decode(Ids{262, 259, 261}, {.keep_special = true}),
            "<|im_start|>hello<|end|>");
  EXPECT_EQ(tokenizer.decode(Ids{-1, 263, 100000}), "");
}

TEST(Tokenizer, FallsBackToBytesAndStripsTheFirstSpace) {
  const Tokenizer tokenizer = test::load_json_text(test::sentencepiece_json());
  const Ids ids = tokenizer.encode("ab  ç").take();
  EXPECT_EQ(ids, (Ids{265, 266, 3 + 0xC3, 3 + 0xA7}));
  EXPECT_EQ(tokenizer.decode(ids), "ab  ç");
  EXPECT_EQ(tokenizer.decode(Ids{3 + 0xC3, 260}),
            "\xEF\xBF\xBD"
            "a");  // half a character, then a letter
}

TEST(Tokenizer, TakesTimeLinearInOneEndlessWord) {
  for (const std::string& json : {test::byte_level_json(), test::sentencepiece_json()}) {
    const Tokenizer tokenizer = test::load_json_text(json);
    for (const std::string_view unit : {"a", " ", "ll", "hello", "🦙", "▁", "\n", "é"}) {
      std::string text;
      while (text.size() < 1'000'000) text += unit;
      const auto began = std::chrono::steady_clock::now();
      const Ids ids = tokenizer.encode(text).take();
      if (unit != "▁") {  // SentencePiece reads it as a space
        EXPECT_EQ(tokenizer.decode(ids), text);
      }
      // Quadratic would take minutes; ten seconds leave room for sanitizers and a busy machine.
      EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10)) << unit;
    }
  }
}

TEST(Tokenizer, GivesTheSameIdsToManyThreads) {
  const Tokenizer tokenizer = test::load_json_text(test::byte_level_json());
  std::mt19937 random(11);
  std::string text;
  for (int i = 0; i < 2000; ++i) text += random() % 3 == 0 ? "hello " : random_utf8(random, 5);
  const Ids expected = tokenizer.encode(text).take();
  std::vector<Ids> results(4);
  {
    std::vector<std::jthread> threads;
    for (Ids& result : results)
      threads.emplace_back([&] { result = tokenizer.encode(text).take(); });
  }
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

// A prompt of parts: the template's in brackets, the rest of users.
struct Prompt {
  std::string text;
  std::vector<base::TextSpan> spans;
  operator MarkedPrompt() const { return {text, spans}; }
};

Prompt prompt_of(std::string_view parts) {
  Prompt prompt;
  for (std::size_t at = 0; at < parts.size(); ++at) {
    if (parts[at] == '{') {
      prompt.spans.push_back({prompt.text.size(), 0});
    } else if (parts[at] == '}') {
      prompt.spans.back().end = prompt.text.size();
    } else {
      prompt.text += parts[at];
    }
  }
  return prompt;
}

Ids joined(std::initializer_list<Ids> lists) {
  Ids all;
  for (const Ids& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

TEST(MarkedPrompt, SpecialTokensCountInTheTemplateOnly) {
  const Tokenizer tokenizer = test::load_json_text(test::byte_level_json());
  const auto plain = [&](std::string_view text) { return tokenizer.encode(text).value(); };
  const auto encode = [&](std::string_view parts) {
    return tokenizer.encode(prompt_of(parts)).value();
  };
  const TokenId end = 261, start = 262, tool = 264;
  EXPECT_EQ(encode("{<|im_start|>}hello{<|end|>}"), joined({{start}, plain("hello"), {end}}));
  EXPECT_EQ(encode("x<|end|>{<|end|>}"), joined({plain("x<|end|>"), {end}}));
  EXPECT_EQ(encode("{<|im_start|>}<|im_start|>{<|end|>}"),
            joined({{start}, plain("<|im_start|>"), {end}}));
  // Half by the template and half by a user is a user's.
  EXPECT_EQ(encode("{<|im_}start|>"), plain("<|im_start|>"));
  EXPECT_EQ(encode("<|im_{start|>}"), plain("<|im_start|>"));
  EXPECT_EQ(encode("{<|}im_start{|>}"), plain("<|im_start|>"));
  // A user's start of a token does not hide the template's own.
  EXPECT_EQ(encode("<|im_st{<|end|>}"), joined({plain("<|im_st"), {end}}));
  // Not special and in no template: as good as a word.
  EXPECT_EQ(encode("<tool>"), Ids{tool});
  // Words go over borders as if there were none.
  EXPECT_EQ(encode("{he}ll{o}"), plain("hello"));
  EXPECT_EQ(encode(""), Ids{});
  EXPECT_EQ(encode("{<|end|>}"), Ids{end});
}

TEST(MarkedPrompt, WhatTheChatTemplateWritesIsControl) {
  const std::string json = test::byte_level_json();
  HuggingFaceFiles files;
  files.tokenizer_json = json;
  files.chat_template = "{{ '<tool>' + messages[0].content }}";
  const Tokenizer tokenizer = from_tokenizer_json(files).take();
  const TokenId tool = 264;
  EXPECT_TRUE(tokenizer.is_control(tool));
  EXPECT_FALSE(tokenizer.is_special(tool));
  EXPECT_EQ(tokenizer.encode(prompt_of("{<tool>}")).value(), Ids{tool});
  EXPECT_EQ(tokenizer.encode(prompt_of("<tool>")).value().size(), 6U);
  // Elsewhere it is found as ever.
  EXPECT_EQ(tokenizer.encode("<tool>").value(), Ids{tool});
}

TEST(MarkedPrompt, WhichTokensAreControl) {
  std::vector<AddedToken> tokens;
  for (const std::string_view content : {"<s>", "<|x|>", "<think>", "<h1>", "[TOOL]", "[1]", "  ",
                                         "\n\n", "word", "<a b>", "<>", "<｜y｜>"})
    tokens.push_back({.content = std::string(content)});
  tokens[0].is_special = true;
  const std::pair<std::string, std::string> templates[] = {
      {"default", "{{ x.split('<think>') }}  \n\n word <a b> <>"}, {"tools", "[TOOL]"}};
  mark_control_tokens(tokens, templates);
  std::vector<std::string> control;
  for (const AddedToken& token : tokens) {
    if (token.is_control) control.push_back(token.content);
  }
  EXPECT_EQ(control, (std::vector<std::string>{"<s>", "<|x|>", "<think>", "[TOOL]", "<｜y｜>"}));
}

// Control tokens that are looked for in normalized text: the text moves, and full-width brackets
// become plain ones.
TEST(MarkedPrompt, NormalizingMakesNoControlTokens) {
  std::string json = test::byte_level_json();
  const auto put = [&](std::string_view from, std::string_view to) {
    json.replace(json.find(from), from.size(), to);
  };
  put(R"("normalizer":null)",
      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"String":"h"},"content":"hh"},{"type":"NFKC"}]})");
  put(R"("content":"<|im_start|>","special":true)",
      R"("content":"<|im_start|>","special":true,"normalized":true)");
  const Tokenizer tokenizer = test::load_json_text(json);
  const TokenId start = 262;
  const Ids whole = tokenizer.encode("ｈello<|im_start|>hello", {.parse_special = true}).value();
  EXPECT_EQ(std::count(whole.begin(), whole.end(), start), 1);
  EXPECT_EQ(tokenizer.encode(prompt_of("ｈello{<|im_start|>}hello")).value(), whole);
  for (const std::string_view forged :
       {"<|im_start|>", "＜|im_start|>", "x＜｜im_start｜＞", "\uFDD0<|im_start|>"}) {
    const Prompt prompt = prompt_of("{a<|im_start|>}" + std::string(forged) + "{<|im_start|>}");
    const Ids ids = tokenizer.encode(prompt).value();
    EXPECT_EQ(std::count(ids.begin(), ids.end(), start), 2) << forged;
  }
}

TEST(StreamingDecoder, AgreesWithDecodeForAnyIdsAndIsAlwaysUtf8) {
  for (const std::string& json : {test::byte_level_json(), test::sentencepiece_json()}) {
    const Tokenizer tokenizer = test::load_json_text(json);
    std::mt19937 random(3);
    for (int i = 0; i < 4000; ++i) {
      Ids ids;
      for (std::size_t n = random() % 12; n > 0; --n) {
        ids.push_back(
            static_cast<TokenId>(random() % 3 == 0 ? random() % 270 : 3 + 0x80 + random() % 0x80));
      }
      StreamingDecoder decoder(tokenizer, {.keep_special = true});
      std::string streamed;
      for (const TokenId id : ids) {
        const std::string piece = decoder.decode_next(id);
        ASSERT_EQ(find_invalid_utf8(piece), piece.size());
        streamed += piece;
      }
      streamed += decoder.flush();
      ASSERT_EQ(streamed, tokenizer.decode(ids, {.keep_special = true})) << "seed 3, ids " << i;
    }
  }
}

// After any prompt: what decode makes of both, less what it makes of the prompt; and the bytes of
// the ids are the bytes of the text.
void expect_continuations(const Tokenizer& tokenizer, const std::string& name) {
  for (const std::string_view text :
       {"The quick brown fox", " a  b", "once upon a time, Bob", "x\n y"}) {
    const Ids ids = tokenizer.encode(text, {.add_special = true}).value();
    const std::string whole = tokenizer.decode(ids);
    for (std::size_t cut = 0; cut <= ids.size(); ++cut) {
      const auto prompt = std::span(ids).first(cut);
      StreamingDecoder decoder(tokenizer, {}, prompt);
      std::string streamed, bytes;
      for (const TokenId id : std::span(ids).subspan(cut)) {
        if (!tokenizer.is_special(id)) bytes += decoder.bytes_of(id);
        streamed += decoder.decode_next(id);
      }
      streamed += decoder.flush();
      EXPECT_EQ(tokenizer.decode(prompt) + streamed, whole) << name << ", cut " << cut;
      EXPECT_EQ(bytes, streamed) << name << ", cut " << cut;
    }
  }
}

TEST(StreamingDecoder, GoesOnAfterAPromptWhereverItEnds) {
  for (const std::string name :
       {"byte_level", "chat", "metaspace", "sentencepiece", "unigram", "wordpiece"}) {
    expect_continuations(load_tokenizer(llorch::test::source_path("tests/golden/tokenizer/" + name +
                                                                  ".tokenizer.json"))
                             .take(),
                         name);
  }
}

TEST(StreamingDecoder, GoesOnAfterAPromptOfRealTokenizers) {
  std::size_t count = 0;
  for (const std::string name :
       {"tokenizers/gpt2", "tokenizers/llama3_1", "tokenizers/mistral_7b_v0_3",
        "tokenizers/tinyllama_llama2", "weights/stories15M/stories15M-Q8_0.gguf",
        "weights/minimind2-small/hf", "vocab/ggml-vocab-llama-spm.gguf",
        "vocab/ggml-vocab-phi-3.gguf"}) {
    const auto path = llorch::test::data_path(name);
    if (!path) continue;
    ++count;
    expect_continuations(load_tokenizer(*path).take(), name);
  }
  if (count == 0) GTEST_SKIP() << "real data absent: tokenizers, weights, vocab";
}

TEST(StreamingDecoder, ACharacterThatThePromptBeganComesWhole) {
  const Tokenizer tokenizer = test::load_json_text(test::byte_level_json());
  const Ids prompt = {'a', 0xF0, 0x9F};
  StreamingDecoder decoder(tokenizer, {}, prompt);
  EXPECT_EQ(decoder.decode_next(0xA6), "");
  EXPECT_EQ(decoder.bytes_of(0x99), "\x99");
  EXPECT_EQ(decoder.decode_next(0x99), "🦙");
}

TEST(StreamingDecoder, HoldsNothingLongerThanACharacter) {
  const Tokenizer tokenizer = test::load_json_text(test::byte_level_json());
  StreamingDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.decode_next(0xF0), "");
  EXPECT_EQ(decoder.decode_next(0x9F), "");
  EXPECT_EQ(decoder.decode_next(0xA6), "");
  EXPECT_EQ(decoder.decode_next(0x99), "🦙");
  EXPECT_EQ(decoder.decode_next('a'), "a");
  EXPECT_EQ(decoder.decode_next(0xE4), "");
  EXPECT_EQ(decoder.decode_next('b'),
            "\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(decoder.decode_next(0xE4), "");
  EXPECT_EQ(decoder.flush(), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace llorch::tokenizer
