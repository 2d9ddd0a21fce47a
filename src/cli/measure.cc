#include "cli/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/thread.h"

namespace llorch::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int32_t kWarmTokens = 48;
constexpr std::size_t kShortPrompt = 8;
constexpr double kShortMs = 10;
constexpr std::size_t kShortAsks = 9;
constexpr std::array<std::string_view, 4> kTexts = {
    "1, 2, 3, 4, 5,", "Once upon a time, in a small town by the sea, there lived",
    "The quick brown fox jumps over the", "Question: what is the capital of France?\nAnswer:"};
constexpr int kShortTries = 5;
constexpr std::uint64_t kKnownTries = 12;
constexpr std::size_t kKnownWanted = 16;

// 0 of none.
double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double ms_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - start).count();
}

// What every part of a measurement has.
struct Course {
  const ModelClient& client;
  const MeasurePlan& plan;
  const OnMeasure& on_measure;
  std::stop_token stop;
  Clock::time_point begun = Clock::now();
  std::vector<std::int32_t> known{};
  std::uint64_t salt = 0;
  std::size_t steps_done = 0;
  std::size_t steps = 1;

  bool is_over() const { return Clock::now() - begun > plan.limit; }
  void tell(std::string_view what) {
    on_measure(what, static_cast<double>(steps_done++) / static_cast<double>(steps));
  }
  // No two alike, also not in another run: a fleet's workers remember.
  Asked make(std::size_t prompt_tokens, std::int32_t tokens) {
    Asked asked;
    asked.prompt_ids = shuffled_prompt(
        known, prompt_tokens,
        static_cast<std::uint64_t>(begun.time_since_epoch().count()) + (++salt << 32));
    asked.max_tokens = tokens;
    asked.temperature = 1;
    asked.seed = salt;
    return asked;
  }
};

// One measurement again and again; false when the time is over and nothing was measured.
template <class Once>
Status repeat(Course& course, Figure figure, std::string_view what, const Once& once,
              Measured& measured) {
  for (std::int32_t i = 0; i < course.plan.repeats; ++i) {
    course.tell(what);
    if (course.is_over()) continue;
    // A model may end at once; with other prompts it may not.
    Result<double> sample = 0.0;
    for (int k = 0; k < kShortTries && sample.ok() && *sample <= 0; ++k) sample = once();
    if (!sample.ok()) return sample.error().in(what);
    if (*sample > 0) figure.samples.push_back(*sample);
  }
  if (!figure.samples.empty()) {
    measured.figures.push_back(std::move(figure));
    return ok_status();
  }
  measured.skipped.push_back(
      course.is_over() ? fmt::format("{}: the time of {:.0f} s was over", what,
                                     std::chrono::duration<double>(course.plan.limit).count())
                       : fmt::format("{}: answers were too short to measure", what));
  return ok_status();
}

// Until the first token; an answer that is nothing but the model's end makes no event of one.
double first_ms(const Heard& heard) {
  return heard.first_ms > 0 ? heard.first_ms : heard.total_ms;
}

// What is over in less than a processor's turn is asked for several times: whether it had to wait
// for its turn would be most of it.
Result<double> first_token(Course& course) {
  std::vector<double> times;
  do {
    const Result<Heard> heard = course.client.ask(course.make(kShortPrompt, 1), course.stop);
    if (!heard.ok()) return heard.error();
    times.push_back(first_ms(*heard));
  } while (times.size() < kShortAsks && times.front() < kShortMs && !course.is_over());
  return median_of(std::move(times));
}

// Tokens of the prompt a second, from the request to the first token.
Result<double> prefill(Course& course, std::size_t tokens) {
  const Result<Heard> heard = course.client.ask(course.make(tokens, 1), course.stop);
  if (!heard.ok()) return heard.error();
  if (first_ms(*heard) <= 0) return 0.0;
  return static_cast<double>(heard->prompt_tokens - heard->cached_tokens) * 1000 / first_ms(*heard);
}

Result<double> decode(Course& course, std::int32_t streams) {
  std::vector<Asked> asks;
  asks.reserve(static_cast<std::size_t>(streams));
  for (std::int32_t i = 0; i < streams; ++i)
    asks.push_back(course.make(kShortPrompt, course.plan.tokens));
  const std::vector<TimedAnswer> answers = ask_together(course.client, asks, course.stop);
  for (const TimedAnswer& timed : answers)
    if (!timed.answer.ok()) return timed.answer.error();
  return decode_rate(answers);
}

std::size_t prefill_length(const MeasurePlan& plan, std::int64_t context) {
  const std::int64_t half = context > 0 ? context / 2 : plan.prefill_tokens;
  return static_cast<std::size_t>(
      std::max<std::int64_t>(1, std::min<std::int64_t>(plan.prefill_tokens, half)));
}

}  // namespace

double Figure::median() const {
  return median_of(samples);
}

double Figure::noise() const {
  const double middle = median();
  if (middle <= 0) return 0;
  std::vector<double> distances;
  for (const double sample : samples) distances.push_back(std::abs(sample - middle));
  return median_of(std::move(distances)) / middle;
}

json::Object to_json(const Figure& figure) {
  return {{"name", figure.name},
          {"unit", figure.unit},
          {"median", figure.median()},
          {"noise", figure.noise()},
          {"samples", json::Array(figure.samples.begin(), figure.samples.end())}};
}

std::optional<Figure> read_figure(const json::Value& value) {
  const json::Object* object = value.if_object();
  if (object == nullptr) return std::nullopt;
  const json::Value* name = object->if_contains("name");
  const json::Value* unit = object->if_contains("unit");
  const json::Value* samples = object->if_contains("samples");
  if (name == nullptr || !name->is_string() || unit == nullptr || !unit->is_string() ||
      samples == nullptr || !samples->is_array())
    return std::nullopt;
  Figure figure{
      std::string(json::view(name->get_string())), std::string(json::view(unit->get_string())), {}};
  for (const json::Value& sample : samples->get_array()) {
    if (!sample.is_number()) return std::nullopt;
    figure.samples.push_back(sample.to_number<double>());
  }
  return figure;
}

std::vector<TimedAnswer> ask_together(const ModelClient& client, const std::vector<Asked>& asks,
                                      const std::stop_token& stop) {
  const Clock::time_point origin = Clock::now();
  std::vector<TimedAnswer> answers(asks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < asks.size(); ++i) {
      threads.push_back(base::start_thread("ask", [&, i] {
        answers[i].asked_ms = ms_between(origin, Clock::now());
        answers[i].answer = client.ask(asks[i], stop);
      }));
    }
  }
  return answers;
}

Result<std::vector<std::int32_t>> find_known_ids(const ModelClient& client,
                                                 const std::stop_token& stop) {
  std::vector<std::int32_t> known;
  // A model that was made for talking may end at once where a text is to be continued.
  for (std::uint64_t seed = 1; seed <= kKnownTries && known.size() < kKnownWanted; ++seed) {
    Asked asked{.prompt = std::string(kTexts[seed % kTexts.size()]),
                .max_tokens = kWarmTokens,
                .temperature = 1,
                .seed = seed};
    Result<Heard> heard = client.ask(asked, stop);
    if (!heard.ok()) return heard.error();
    // The last one may be the model's end.
    if (heard->stop_reason == "eos" && !heard->ids.empty()) heard->ids.pop_back();
    known.insert(known.end(), heard->ids.begin(), heard->ids.end());
  }
  if (!known.empty()) return known;
  return Error{ErrorCode::Internal,
               fmt::format("the model ended {} times without a token of text", kKnownTries)};
}

std::vector<std::int32_t> shuffled_prompt(const std::vector<std::int32_t>& known, std::size_t count,
                                          std::uint64_t salt) {
  std::vector<std::int32_t> ids;
  ids.reserve(count);
  std::uint64_t state = salt * 0x9E3779B97F4A7C15ULL + 1;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    ids.push_back(known[(state >> 33) % known.size()]);
  }
  return ids;
}

double decode_rate(const std::vector<TimedAnswer>& answers) {
  double first = 0;
  double last = 0;
  std::size_t tokens = 0;
  for (const TimedAnswer& timed : answers) {
    if (!timed.answer.ok() || timed.answer->ids.size() < 2) continue;
    first = tokens == 0 ? timed.asked_ms : std::min(first, timed.asked_ms);
    last = std::max(last, timed.asked_ms + timed.answer->last_ms);
    tokens += timed.answer->ids.size();
  }
  return last > first ? static_cast<double>(tokens) * 1000 / (last - first) : 0;
}

Result<Measured> measure_model(const ModelClient& client, const MeasurePlan& plan,
                               const OnMeasure& on_measure, std::stop_token stop) {
  Course course{client, plan, on_measure, std::move(stop)};
  course.steps = static_cast<std::size_t>(plan.repeats) * (plan.streams.size() + 2) + 1;
  course.tell("warming up");
  Result<std::vector<std::int32_t>> known = find_known_ids(client, course.stop);
  if (!known.ok()) return known.error().in("warming up");
  course.known = known.take();
  const Result<ModelFacts> facts = client.facts();
  if (!facts.ok()) return facts.error();
  const std::size_t prompt = prefill_length(plan, facts->context);
  Measured measured;
  Status done = repeat(
      course, {"first_token_ms", "ms", {}}, "first token", [&] { return first_token(course); },
      measured);
  if (!done.ok()) return done.error();
  done = repeat(
      course, {"prefill_tps", "tokens/s", {}}, fmt::format("prefill of {}", prompt),
      [&] { return prefill(course, prompt); }, measured);
  if (!done.ok()) return done.error();
  for (const std::int32_t streams : plan.streams) {
    done = repeat(
        course, {fmt::format("decode_tps_{}", streams), "tokens/s", {}},
        fmt::format("decode with {} stream{}", streams, streams == 1 ? "" : "s"),
        [&] { return decode(course, streams); }, measured);
    if (!done.ok()) return done.error();
  }
  if (course.stop.stop_requested()) return Error{ErrorCode::Cancelled, "interrupted"};
  return measured;
}

}  // namespace llorch::cli
