#include "cli/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "base/mutex.h"

namespace llorch::cli {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::SizeIs;

// Answers at once, a token each millisecond of its own clock.
class ScriptedModel : public ModelClient {
 public:
  Result<ModelFacts> facts() const override { return ModelFacts{.context = context}; }
  Result<Heard> ask(const Asked& asked, std::stop_token stop) const override {
    {
      const base::MutexLock lock(mutex_);
      seen.push_back(asked);
    }
    if (stop.stop_requested()) return Error{ErrorCode::Cancelled, "stopped"};
    if (static_cast<int>(++calls) == fail_at) return Error{ErrorCode::QueueFull, "no room"};
    Heard heard;
    heard.prompt_tokens = static_cast<std::int64_t>(asked.prompt_ids.size());
    heard.first_ms = 10;
    heard.last_ms = 10 + asked.max_tokens - 1;
    for (std::int32_t i = 0; i < asked.max_tokens; ++i) heard.ids.push_back(100 + i);
    heard.stop_reason = "max_tokens";
    if (on_ask) on_ask();
    return heard;
  }
  Result<double> cancel_after(const Asked&, std::size_t, std::stop_token) const override {
    return 1.0;
  }
  Result<json::Object> chat(const Asked&, std::stop_token) const override { return json::Object{}; }

  std::int64_t context = 4096;
  int fail_at = 0;
  std::function<void()> on_ask;
  mutable base::Mutex mutex_;
  mutable std::vector<Asked> seen;
  mutable std::atomic<int> calls = 0;
};

const OnMeasure kSilent = [](std::string_view, double) {};

TEST(Figure, HasAMedianAndANoise) {
  EXPECT_EQ((Figure{"x", "ms", {3, 1, 2}}.median()), 2);
  EXPECT_EQ((Figure{"x", "ms", {4, 1, 2, 3}}.median()), 2.5);
  EXPECT_EQ((Figure{"x", "ms", {8, 10, 12}}.noise()), 0.2);
  EXPECT_EQ((Figure{"x", "ms", {9, 10, 11, 10, 900}}.noise()), 0.1) << "one outlier is none";
  EXPECT_EQ((Figure{"x", "ms", {7}}.noise()), 0);
  EXPECT_EQ((Figure{"x", "ms", {}}.median()), 0);
  EXPECT_EQ((Figure{"x", "ms", {}}.noise()), 0);
  EXPECT_FALSE((Figure{"x", "ms", {}}.is_better_when_more()));
  EXPECT_TRUE((Figure{"x", "tokens/s", {}}.is_better_when_more()));
}

TEST(Figure, ReadsWhatItWrites) {
  const Figure figure{"prefill_tps", "tokens/s", {1.5, 2}};
  const std::optional<Figure> read = read_figure(to_json(figure));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, figure.name);
  EXPECT_EQ(read->unit, figure.unit);
  EXPECT_EQ(read->samples, figure.samples);
  EXPECT_FALSE(read_figure(json::Object{{"name", "x"}}));
  EXPECT_FALSE(read_figure(
      json::Object{{"name", "x"}, {"unit", "ms"}, {"samples", json::Array{json::Value("much")}}}));
}

TEST(DecodeRate, CountsAllStreamsOverTheTimeOfAll) {
  const auto answer = [](double asked_ms, double first, double last, std::size_t tokens) {
    Heard heard;
    heard.first_ms = first;
    heard.last_ms = last;
    heard.ids.resize(tokens);
    return TimedAnswer{heard, asked_ms};
  };
  EXPECT_DOUBLE_EQ(decode_rate({answer(0, 10, 100, 100)}), 1000);
  // Asked 100 later: twice the tokens in twice the time.
  EXPECT_DOUBLE_EQ(decode_rate({answer(0, 10, 100, 100), answer(100, 10, 100, 100)}), 1000);
  EXPECT_DOUBLE_EQ(decode_rate({answer(0, 10, 100, 100), answer(0, 10, 100, 100)}), 2000);
  // Pieces that arrive in one go were not written in no time.
  EXPECT_DOUBLE_EQ(decode_rate({answer(0, 100, 100, 100)}), 1000);
  EXPECT_EQ(decode_rate({answer(0, 10, 10, 1)}), 0);
  EXPECT_EQ(decode_rate({TimedAnswer{}}), 0);
}

TEST(ShuffledPrompt, IsOfKnownIdsAndDiffersBySalt) {
  const std::vector<std::int32_t> known = {5, 6, 7, 8};
  const auto one = shuffled_prompt(known, 100, 1);
  EXPECT_THAT(one, SizeIs(100));
  EXPECT_EQ(one, shuffled_prompt(known, 100, 1));
  EXPECT_NE(one, shuffled_prompt(known, 100, 2));
  for (const std::int32_t id : one)
    EXPECT_THAT(id, ::testing::AllOf(::testing::Ge(5), ::testing::Le(8)));
}

TEST(MeasureModel, MeasuresEachPartAsOftenAsAsked) {
  const ScriptedModel model;
  std::vector<double> done;
  const auto measured =
      measure_model(model, {.repeats = 2, .tokens = 8, .prefill_tokens = 32, .streams = {1, 4}},
                    [&](std::string_view, double part) { done.push_back(part); }, {});
  ASSERT_TRUE(measured.ok());
  EXPECT_THAT(measured->skipped, IsEmpty());
  std::vector<std::string> names;
  for (const Figure& figure : measured->figures) {
    names.push_back(figure.name);
    EXPECT_THAT(figure.samples, SizeIs(2)) << figure.name;
  }
  EXPECT_THAT(names, ElementsAre("first_token_ms", "prefill_tps", "decode_tps_1", "decode_tps_4"));
  EXPECT_EQ(measured->figures[0].median(), 10);
  EXPECT_EQ(measured->figures[1].median(), 3200);  // 32 tokens in 10 ms
  EXPECT_EQ(model.calls, 1 + 2 + 2 + 2 + 2 * 4);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_LT(done.back(), 1);
  // No two prompts have the same beginning, so that no cache of prefixes helps.
  for (std::size_t i = 2; i < model.seen.size(); ++i)
    EXPECT_NE(model.seen[i].prompt_ids, model.seen[i - 1].prompt_ids);
}

TEST(KnownIds, AModelThatEndsAtOnceIsAskedAgain) {
  class Laconic : public ScriptedModel {
   public:
    Result<Heard> ask(const Asked& asked, std::stop_token stop) const override {
      Result<Heard> heard = ScriptedModel::ask(asked, std::move(stop));
      heard->stop_reason = "eos";
      heard->ids.resize(asked.seed % 3 == 0 ? talks : 1);  // else nothing but the end
      return heard;
    }
    std::size_t talks = 9;
  } model;
  const auto known = find_known_ids(model, {});
  ASSERT_TRUE(known.ok());
  EXPECT_THAT(*known, SizeIs(16));
  model.talks = 1;
  const auto none = find_known_ids(model, {});
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("without a token of text"));
}

TEST(MeasureModel, ALongPromptFitsAShortContext) {
  ScriptedModel model;
  model.context = 64;
  ASSERT_TRUE(measure_model(model, {.repeats = 1, .streams = {1}}, kSilent, {}).ok());
  std::size_t longest = 0;
  for (const Asked& asked : model.seen) longest = std::max(longest, asked.prompt_ids.size());
  EXPECT_EQ(longest, 32U);
}

TEST(MeasureModel, AnAnswerWithoutATokenOfTextCountsToItsEnd) {
  class Silent : public ScriptedModel {
   public:
    Result<Heard> ask(const Asked& asked, std::stop_token stop) const override {
      Result<Heard> heard = ScriptedModel::ask(asked, std::move(stop));
      if (asked.max_tokens == 1) heard->first_ms = 0;
      heard->total_ms = 20;
      return heard;
    }
  } model;
  const auto measured =
      measure_model(model, {.repeats = 1, .prefill_tokens = 32, .streams = {1}}, kSilent, {});
  ASSERT_TRUE(measured.ok());
  ASSERT_THAT(measured->figures, SizeIs(3));
  EXPECT_EQ(measured->figures[0].median(), 20);
  EXPECT_EQ(measured->figures[1].median(), 1600);  // 32 tokens in 20 ms
}

TEST(MeasureModel, AShortFirstTokenIsTheMedianOfSeveral) {
  class Swift : public ScriptedModel {
   public:
    Result<Heard> ask(const Asked& asked, std::stop_token stop) const override {
      Result<Heard> heard = ScriptedModel::ask(asked, std::move(stop));
      // Most of them at once, some after the processor's turn.
      if (asked.max_tokens == 1) heard->first_ms = asks++ % 3 == 0 ? 8 : 0.5;
      return heard;
    }
    mutable int asks = 0;
  } model;
  const auto measured =
      measure_model(model, {.repeats = 3, .prefill_tokens = 8, .streams = {1}}, kSilent, {});
  ASSERT_TRUE(measured.ok());
  EXPECT_THAT(measured->figures[0].samples, ElementsAre(0.5, 0.5, 0.5));
  EXPECT_EQ(model.asks, 3 * 9 + 3);
}

TEST(MeasureModel, AnAnswerThatIsTooShortIsAskedForAgain) {
  class Abrupt : public ScriptedModel {
   public:
    Result<Heard> ask(const Asked& asked, std::stop_token stop) const override {
      Result<Heard> heard = ScriptedModel::ask(asked, std::move(stop));
      if (asked.max_tokens > 1 && !asked.prompt_ids.empty() && ++answers % 3 != 0) heard->ids = {1};
      return heard;
    }
    mutable std::atomic<int> answers = 0;
  } model;
  const auto measured =
      measure_model(model, {.repeats = 2, .prefill_tokens = 8, .streams = {1}}, kSilent, {});
  ASSERT_TRUE(measured.ok());
  ASSERT_THAT(measured->figures, SizeIs(3));
  EXPECT_THAT(measured->figures[2].samples, SizeIs(2));
}

TEST(MeasureModel, NothingIsBegunAfterItsTime) {
  const ScriptedModel model;
  const auto measured = measure_model(
      model, {.streams = {1, 2}, .limit = std::chrono::milliseconds(-1)}, kSilent, {});
  ASSERT_TRUE(measured.ok());
  EXPECT_THAT(measured->figures, IsEmpty());
  EXPECT_THAT(measured->skipped, SizeIs(4));
  EXPECT_THAT(measured->skipped.back(), HasSubstr("decode with 2 streams: the time of"));
  EXPECT_EQ(model.calls, 1);
}

TEST(MeasureModel, AFailureSaysWhichPartItWas) {
  ScriptedModel model;
  model.fail_at = 6;  // warm-up, first token, prefill, one stream, then two
  const auto measured =
      measure_model(model, {.repeats = 1, .tokens = 4, .streams = {1, 2}}, kSilent, {});
  ASSERT_FALSE(measured.ok());
  EXPECT_EQ(measured.error().code, ErrorCode::QueueFull);
  EXPECT_EQ(measured.error().message, "decode with 2 streams: no room");
}

TEST(MeasureModel, AStopEndsIt) {
  ScriptedModel model;
  std::stop_source stop;
  model.on_ask = [&] { stop.request_stop(); };
  const auto measured = measure_model(model, {}, kSilent, stop.get_token());
  ASSERT_FALSE(measured.ok());
  EXPECT_EQ(measured.error().code, ErrorCode::Cancelled);
  EXPECT_EQ(model.calls, 1);
}

}  // namespace
}  // namespace llorch::cli
