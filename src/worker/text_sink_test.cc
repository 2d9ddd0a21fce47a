#include "worker/text_sink.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "support/test_paths.h"
#include "tokenizer/load.h"
#include "worker/engine_backend.h"
#include "worker/token_texts.h"

namespace llorch::worker {
namespace {

using ::testing::ElementsAre;

class Recorder final : public worker_http::TextListener {
 public:
  void on_started(const contract::StartedEvent& event) override { started = event; }
  void on_told(openai::ToldText text) override { told = std::move(text); }
  bool on_text(worker_http::TextPiece piece) override {
    pieces.push_back(std::move(piece));
    return wants_more;
  }
  void on_end(Result<contract::InferenceResult> outcome) override { end = std::move(outcome); }

  bool wants_more = true;
  std::optional<contract::StartedEvent> started;
  std::optional<openai::ToldText> told;
  std::vector<worker_http::TextPiece> pieces;
  std::optional<Result<contract::InferenceResult>> end;
};

class TextSinkTest : public ::testing::Test {
 protected:
  explicit TextSinkTest(std::string_view name = "chat")
      : tokenizer_(tokenizer::load_tokenizer(test::source_path(fmt::format(
                                                 "tests/golden/tokenizer/{}.tokenizer.json", name)))
                       .take()),
        texts_(make_token_texts(tokenizer_)) {}

  std::vector<engine::TokenId> ids(std::string_view text) {
    return tokenizer_.encode(text, {.parse_special = true}).value();
  }

  std::unique_ptr<TextSink> make(TextSinkContext context) {
    recorder_ = std::make_shared<Recorder>();
    return std::make_unique<TextSink>(std::move(context), tokenizer_, prompt_, recorder_);
  }

  // Says the text token by token until the sink has had enough.
  engine::Verdict say(TextSink& sink, std::string_view text) {
    engine::Verdict verdict = engine::Verdict::Continue;
    for (const engine::TokenId id : ids(text)) {
      if (verdict != engine::Verdict::Continue) break;
      const engine::TokenLogprob top[] = {{id, -0.5F}, {0, -2.0F}};
      verdict = sink.on_token({.id = id, .index = index_++, .logprob = -0.5F, .top = top});
    }
    return verdict;
  }

  std::string said() const {
    std::string text;
    for (const auto& piece : recorder_->pieces) text += piece.text;
    return text;
  }

  tokenizer::Tokenizer tokenizer_;
  TokenTexts texts_;
  std::vector<engine::TokenId> prompt_;
  std::shared_ptr<Recorder> recorder_;
  std::int32_t index_ = 0;
};

TEST_F(TextSinkTest, MarkersAreTextAndOtherSpecialTokensAreNot) {
  const std::vector<engine::TokenId> marker = ids("<|im_start|>");
  ASSERT_EQ(marker.size(), 1U);
  TextSinkContext context;
  context.markers = marker;
  auto sink = make(context);
  say(*sink, "a<|im_start|>b<|im_end|>c");
  sink->on_finished({.reason = engine::FinishReason::MaxTokens});
  std::string text;
  std::size_t num_tokens = 0;
  for (const worker_http::TextPiece& piece : recorder_->pieces) {
    text += piece.text;
    num_tokens += piece.ids.size();
  }
  EXPECT_EQ(text, "a<|im_start|>bc");
  EXPECT_EQ(num_tokens, 5U);
}

TEST_F(TextSinkTest, ReportsThePromptsTokensWithTheirPlaces) {
  for (const bool as_ids : {false, true}) {
    prompt_ = ids("<|im_start|>Hello 🙂");
    const auto count = static_cast<std::int64_t>(prompt_.size());
    const auto sink = make({.prompt_tokens = count,
                            .with_logprobs = true,
                            .score_prompt = true,
                            .prompt_shows_special = as_ids});
    sink->on_started({});
    EXPECT_TRUE(recorder_->pieces.empty()) << "one piece for a short prompt";
    for (std::int32_t i = 1; i < count; ++i) {
      const engine::TokenLogprob top[] = {{5, -0.25F}};
      sink->on_prompt_token(
          {.id = prompt_[static_cast<std::size_t>(i)], .index = i, .logprob = -1, .top = top});
    }
    ASSERT_EQ(recorder_->pieces.size(), 1U);
    const worker_http::TextPiece& piece = recorder_->pieces[0];
    EXPECT_TRUE(piece.is_prompt);
    EXPECT_TRUE(piece.ids.empty());
    ASSERT_EQ(piece.tokens.size(), prompt_.size());
    std::string bytes;
    std::size_t chars = 0;
    for (const worker_http::TokenReport& report : piece.tokens) {
      EXPECT_EQ(report.is_unscored, &report == &piece.tokens.front());
      EXPECT_EQ(report.top.size(), report.is_unscored ? 0U : 1U);
      bytes += report.token.bytes;
      chars += report.chars;
    }
    EXPECT_EQ(bytes, "<|im_start|>Hello 🙂");
    EXPECT_EQ(chars, as_ids ? 19U : 7U) << "a special token is not part of a text";
    say(*sink, " x");
    EXPECT_FALSE(recorder_->pieces.back().is_prompt);
    EXPECT_EQ(said(), " x");
  }
}

TEST_F(TextSinkTest, PassesTextOnAndReportsTheEnd) {
  const auto sink = make({.job_id = "j", .model = "m", .seed = 9, .prompt_tokens = 4});
  sink->on_started({.cached_tokens = 2, .queue_ms = 1.5});
  ASSERT_TRUE(recorder_->started.has_value());
  EXPECT_EQ(recorder_->started->job_id, "j");
  EXPECT_EQ(recorder_->started->seed, 9U);
  EXPECT_EQ(recorder_->started->prompt_tokens, 4);
  EXPECT_EQ(recorder_->started->cached_tokens, 2);
  EXPECT_EQ(say(*sink, "Hello, wörld 🙂"), engine::Verdict::Continue);
  sink->on_finished({.reason = engine::FinishReason::MaxTokens,
                     .tokens_out = 7,
                     .prompt_tokens = 4,
                     .prefill_ms = 2.5,
                     .decode_ms = 10.6});
  EXPECT_EQ(said(), "Hello, wörld 🙂");
  ASSERT_TRUE(recorder_->end && recorder_->end->ok());
  const contract::InferenceResult& result = recorder_->end->value();
  EXPECT_EQ(result.stop_reason, contract::StopReason::MaxTokens);
  EXPECT_EQ(result.tokens_out, 7);
  EXPECT_EQ(result.prompt_tokens, 4);
  EXPECT_EQ(result.decode_time_ms, 11);
  EXPECT_EQ(result.prefill_ms, 2.5);
  EXPECT_EQ(result.seed, 9U);
  EXPECT_GE(result.ttft_ms, 0);
}

TEST_F(TextSinkTest, StopsAtAStopStringAcrossTokens) {
  const auto sink = make({.stop = {"lo, w", "zzz"}});
  EXPECT_EQ(say(*sink, "Hello, world"), engine::Verdict::Stop);
  sink->on_finished({.reason = engine::FinishReason::Stopped});
  EXPECT_EQ(said(), "Hel");
  EXPECT_EQ(recorder_->end->value().stop_reason, contract::StopReason::StopSequence);
  EXPECT_EQ(recorder_->end->value().stop_sequence_matched, "lo, w");
}

TEST_F(TextSinkTest, WhatMightHaveBeenAStopStringIsTextAtTheEnd) {
  const auto sink = make({.stop = {"world!"}});
  EXPECT_EQ(say(*sink, "Hello, world"), engine::Verdict::Continue);
  EXPECT_EQ(said(), "Hello, ");
  sink->on_finished({.reason = engine::FinishReason::EndToken});
  EXPECT_EQ(said(), "Hello, world");
  EXPECT_EQ(recorder_->end->value().stop_reason, contract::StopReason::Eos);
  EXPECT_EQ(recorder_->end->value().stop_sequence_matched, std::nullopt);
}

TEST_F(TextSinkTest, HalfACharacterWaitsAndIsReplacedAtTheEnd) {
  const auto sink = make({});
  const auto whole = ids("🦉");
  ASSERT_GT(whole.size(), 1U);
  for (std::size_t i = 0; i + 1 < whole.size(); ++i) {
    sink->on_token({.id = whole[i]});
    EXPECT_EQ(said(), "");
  }
  sink->on_finished({.reason = engine::FinishReason::MaxTokens});
  EXPECT_EQ(said(), "\xEF\xBF\xBD");
}

// Everything that a listener hears, with the ids: text|ids, the tail with a mark.
std::vector<std::string> lines_of(const std::vector<worker_http::TextPiece>& pieces) {
  std::vector<std::string> lines;
  for (const worker_http::TextPiece& piece : pieces) {
    lines.push_back(fmt::format("{}{}|{}", piece.is_tail ? "tail " : "", piece.text,
                                fmt::join(piece.ids, ",")));
  }
  return lines;
}

TEST_F(TextSinkTest, GoesOnAfterWhatWasTold) {
  struct Case {
    std::string text;
    std::vector<std::string> stop;
    engine::FinishReason reason;
  };
  for (const Case& one : {Case{"Hello, wörld 🙂🦉!", {}, engine::FinishReason::EndToken},
                          Case{"Hello, world", {"world!"}, engine::FinishReason::MaxTokens},
                          Case{"Hello, world", {"o, w"}, engine::FinishReason::Stopped}}) {
    const auto whole = make({.stop = one.stop});
    say(*whole, one.text);
    whole->on_finished({.reason = one.reason});
    const std::vector<worker_http::TextPiece> expected = recorder_->pieces;
    const contract::InferenceResult end = recorder_->end->value();
    const std::vector<engine::TokenId> all = ids(one.text);
    std::size_t told = 0;
    for (std::size_t pieces = 0; pieces < expected.size(); ++pieces) {
      if (expected[pieces].is_tail) break;  // nobody is told of it without the end
      const std::size_t before = told;
      told += expected[pieces].ids.size();
      for (std::size_t cut = before + 1; cut <= told; ++cut) {
        const auto sink =
            make({.stop = one.stop,
                  .told = {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(cut)}});
        sink->on_started({});
        ASSERT_TRUE(recorder_->told.has_value());
        EXPECT_TRUE(recorder_->pieces.empty()) << "what was told is not said again";
        engine::Verdict verdict =
            sink->stopped_after() ? engine::Verdict::Stop : engine::Verdict::Continue;
        for (std::size_t i = cut; i < all.size() && verdict == engine::Verdict::Continue; ++i)
          verdict = sink->on_token({.id = all[i]});
        sink->on_finished({.reason = one.reason});
        EXPECT_EQ(recorder_->end->value().stop_reason, end.stop_reason);
        EXPECT_EQ(recorder_->end->value().stop_sequence_matched, end.stop_sequence_matched);
        EXPECT_EQ(recorder_->end->value().ids, end.ids);
        std::vector<worker_http::TextPiece> both(
            expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(pieces));
        if (cut == told) both.push_back(expected[pieces]);
        both.insert(both.end(), recorder_->pieces.begin(), recorder_->pieces.end());
        // Within a piece, its ids are in two.
        if (cut < told) both[pieces].ids = expected[pieces].ids;
        EXPECT_EQ(lines_of(both), lines_of(expected)) << "cut at " << cut;
      }
    }
  }
}

TEST_F(TextSinkTest, WhatWasToldMayHaveBeenTheEnd) {
  const std::vector<engine::TokenId> all = ids("Hello, world");
  const auto sink = make({.stop = {"lo, w"}, .told = all});
  ASSERT_TRUE(sink->stopped_after().has_value());
  EXPECT_LE(*sink->stopped_after(), all.size());
  sink->on_started({});
  sink->on_finished({.reason = engine::FinishReason::Stopped});
  EXPECT_EQ(said(), "");
  EXPECT_EQ(recorder_->end->value().stop_sequence_matched, "lo, w");
  EXPECT_TRUE(recorder_->end->value().ids.empty());
}

TEST_F(TextSinkTest, AListenerThatHasEnoughCancels) {
  const auto sink = make({});
  recorder_->wants_more = false;
  EXPECT_EQ(say(*sink, "Hello"), engine::Verdict::Cancel);
}

TEST_F(TextSinkTest, EveryTokenIsReportedOnceWithItsText) {
  const auto sink = make({.stop = {"never"}, .with_logprobs = true});
  const std::string text = "Hello 🙂 n";
  say(*sink, text);
  sink->on_finished({.reason = engine::FinishReason::MaxTokens});
  std::string bytes;
  std::size_t reports = 0;
  for (const auto& piece : recorder_->pieces) {
    for (const auto& report : piece.tokens) {
      bytes += report.token.bytes;
      EXPECT_EQ(report.top.size(), 2U);
      EXPECT_EQ(report.token.logprob, -0.5F);
      ++reports;
    }
  }
  EXPECT_EQ(bytes, text);
  EXPECT_EQ(reports, ids(text).size());
}

// SentencePiece: the decoder takes the space off the first piece of a text, and an answer is not
// the start of one.
class SentencePieceSinkTest : public TextSinkTest {
 protected:
  SentencePieceSinkTest() : TextSinkTest("sentencepiece") {}

  // The ids of `text` as the model would go on after `prompt`.
  std::vector<engine::TokenId> continue_with(std::string_view prompt, std::string_view text) {
    prompt_ = tokenizer_.encode(prompt, {.add_special = true}).value();
    std::vector<engine::TokenId> all =
        tokenizer_.encode(std::string(prompt) + std::string(text), {.add_special = true}).value();
    EXPECT_TRUE(std::equal(prompt_.begin(), prompt_.end(), all.begin()));
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(prompt_.size()));
    return all;
  }

  std::string reported() const {
    std::string bytes;
    for (const auto& piece : recorder_->pieces) {
      for (const auto& report : piece.tokens) bytes += report.token.bytes;
    }
    return bytes;
  }
};

TEST_F(SentencePieceSinkTest, AContinuationKeepsTheSpaceOfItsFirstPiece) {
  const auto answer = continue_with("The quick", " brown fox");
  const auto sink = make({.with_logprobs = true});
  for (const engine::TokenId id : answer) sink->on_token({.id = id});
  sink->on_finished({.reason = engine::FinishReason::MaxTokens});
  EXPECT_EQ(said(), " brown fox");
  EXPECT_EQ(reported(), " brown fox");
}

TEST_F(SentencePieceSinkTest, TheFirstPieceOfATextHasNoSpaceInTextAndReports) {
  const auto answer = continue_with("", "The quick brown fox");
  const auto sink = make({.with_logprobs = true});
  for (const engine::TokenId id : answer) sink->on_token({.id = id});
  sink->on_finished({.reason = engine::FinishReason::MaxTokens});
  EXPECT_EQ(said(), "The quick brown fox");
  EXPECT_EQ(reported(), "The quick brown fox");
}

TEST_F(SentencePieceSinkTest, AStopStringMayBeginWithTheSpaceOfTheFirstPiece) {
  const auto answer = continue_with("The quick", " brown fox");
  const auto sink = make({.stop = {" brown"}});
  engine::Verdict verdict = engine::Verdict::Continue;
  for (const engine::TokenId id : answer) {
    if (verdict == engine::Verdict::Continue) verdict = sink->on_token({.id = id});
  }
  EXPECT_EQ(verdict, engine::Verdict::Stop);
  sink->on_finished({.reason = engine::FinishReason::Stopped});
  EXPECT_EQ(said(), "");
  EXPECT_EQ(recorder_->end->value().stop_sequence_matched, " brown");
}

TEST_F(TextSinkTest, FailuresAreErrors) {
  const std::pair<engine::FinishReason, ErrorCode> cases[] = {
      {engine::FinishReason::Cancelled, ErrorCode::Cancelled},
      {engine::FinishReason::TimedOut, ErrorCode::DeadlineExceeded},
      {engine::FinishReason::Failed, ErrorCode::DeviceFailed}};
  for (const auto& [reason, code] : cases) {
    const auto sink = make({});
    engine::GenerationEnd end{.reason = reason};
    if (reason == engine::FinishReason::Failed) end.error = Error{ErrorCode::DeviceFailed, "gone"};
    sink->on_finished(end);
    ASSERT_TRUE(recorder_->end && !recorder_->end->ok());
    EXPECT_EQ(recorder_->end->error().code, code);
  }
}

TEST_F(TextSinkTest, TheJobIsOverBeforeItsListenerHearsSo) {
  const auto jobs = std::make_shared<JobTable>();
  const auto sink = make({});
  sink->set_job(jobs, jobs->begin("j").value());
  sink->on_finished({});
  EXPECT_EQ(jobs->num_active(), 0U);
}

TEST_F(TextSinkTest, SpecialTokensAreShownToPeopleAndNeverGenerated) {
  const engine::TokenId end = ids("<|im_end|>").at(0);
  EXPECT_EQ(texts_.shown[static_cast<std::size_t>(end)], "<|im_end|>");
  EXPECT_EQ(texts_.generated[static_cast<std::size_t>(end)], "");
  const engine::TokenId letter = ids("A").at(0);
  EXPECT_EQ(texts_.generated[static_cast<std::size_t>(letter)], "A");
}

TEST(TokenTexts, SentencePieceBytesAndSpaces) {
  const tokenizer::Tokenizer tokenizer =
      tokenizer::load_tokenizer(
          test::source_path("tests/golden/tokenizer/sentencepiece.tokenizer.json"))
          .take();
  const TokenTexts texts = make_token_texts(tokenizer);
  const auto text_of = [&](std::string_view piece) {
    return texts.shown[static_cast<std::size_t>(tokenizer.find_piece(piece).value())];
  };
  EXPECT_EQ(text_of("<0x0A>"), "\n");
  EXPECT_EQ(text_of("<0xFF>"), "\xFF");
  EXPECT_EQ(text_of("▁"), " ");
}

TEST(EngineBackend, AStepBeyondItsLimitIsAHang) {
  const engine::Clock::time_point now = engine::Clock::now();
  engine::EngineStats stats;
  EXPECT_EQ(describe_hang(stats, now, std::chrono::seconds(300)), "");
  stats.step_began_at = now - std::chrono::seconds(300);
  EXPECT_EQ(describe_hang(stats, now, std::chrono::seconds(300)), "");
  stats.step_began_at = now - std::chrono::seconds(301);
  EXPECT_EQ(describe_hang(stats, now, std::chrono::seconds(300)),
            "one step has been computing for 301 s, expected at most 300 s: restart the worker");
}

// Before there is a model: every question has an answer, none waits.
TEST(EngineBackend, SaysLoadingUntilItHasAModel) {
  int shutdowns = 0;
  EngineBackend backend([&](EngineBackend::Patience) { ++shutdowns; }, std::chrono::seconds(1));
  backend.set_progress(0.25);
  EXPECT_EQ(backend.status().state, worker_http::LoadStatus::State::Loading);
  EXPECT_EQ(backend.status().load_progress, 0.25);
  EXPECT_EQ(backend.model(), nullptr);
  EXPECT_TRUE(backend.is_idle());
  EXPECT_EQ(backend.stats().slots_total, 0);
  EXPECT_EQ(backend.submit({}).error().code, ErrorCode::Unavailable);
  EXPECT_EQ(backend.embed({}, nullptr).error().code, ErrorCode::Unavailable);
  EXPECT_EQ(backend.tokenize("x", false, false, {}).error().code, ErrorCode::Unavailable);
  EXPECT_EQ(backend.detokenize({1}).error().code, ErrorCode::Unavailable);
  EXPECT_EQ(backend.render_chat({}, {}).error().code, ErrorCode::Unavailable);
  EXPECT_EQ(backend.cancel("x").error().code, ErrorCode::NotFound);
  backend.abandon(1);
  backend.request_shutdown({});
  EXPECT_EQ(shutdowns, 1);
  backend.set_ready();
  EXPECT_EQ(backend.status().state, worker_http::LoadStatus::State::Draining);
}

}  // namespace
}  // namespace llorch::worker
