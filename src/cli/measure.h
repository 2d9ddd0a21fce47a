// Speeds of a model as somebody who asks it sees them: repeated, with the noise of the repetitions.
// Private to cli/.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "cli/model_client.h"

namespace llorch::cli {

// One number, measured several times.
struct Figure {
  std::string name;  // "first_token_ms", "prefill_tps", "decode_tps_16"
  std::string unit;  // "ms", "tokens/s", "bytes", "J/token"
  std::vector<double> samples;

  double median() const;  // 0 without samples
  // The median distance of the samples from their median, as a part of it: one sample that is far
  // from all others does not move it. 0 without samples and with one.
  double noise() const;
  bool is_better_when_more() const { return unit == "tokens/s"; }
};
json::Object to_json(const Figure& figure);
// Nothing where it is not one.
std::optional<Figure> read_figure(const json::Value& value);

struct MeasurePlan {
  std::int32_t repeats = 3;
  std::int32_t tokens = 64;           // of each answer
  std::int32_t prefill_tokens = 512;  // or half the context, where that is less
  std::vector<std::int32_t> streams = {1, 4, 16};
  std::chrono::milliseconds limit{120'000};  // of everything: nothing is begun after it
};
inline constexpr std::int32_t kStreamsMax = 64;
inline constexpr std::int32_t kRepeatsMax = 100;

struct Measured {
  std::vector<Figure> figures;
  std::vector<std::string> skipped;  // "decode with 16 streams: the time of 120 s was over"
};

// Told before each request: what is measured, and how much of the whole is done, 0..1.
using OnMeasure = std::function<void(std::string_view what, double done)>;

// An error is the first answer that failed; what came before it is lost. Cancelled after a stop,
// which ends every request.
Result<Measured> measure_model(const ModelClient& client, const MeasurePlan& plan,
                               const OnMeasure& on_measure, std::stop_token stop);

// --- parts that checks use too ---

// An answer and when it was asked for, on a clock that the answers beside it share.
struct TimedAnswer {
  Result<Heard> answer = Error{};
  double asked_ms = 0;
};
// All at the same time, each on a thread of its own.
std::vector<TimedAnswer> ask_together(const ModelClient& client, const std::vector<Asked>& asks,
                                      const std::stop_token& stop);

// Ids that the model knows and that stand for text: those of answers of its own.
Result<std::vector<std::int32_t>> find_known_ids(const ModelClient& client,
                                                 const std::stop_token& stop);
// `count` of those, in an order of its own for each salt, so that no cache knows the beginning.
std::vector<std::int32_t> shuffled_prompt(const std::vector<std::int32_t>& known, std::size_t count,
                                          std::uint64_t salt);

// Tokens a second of all answers together, from the first request to the last token: pieces may
// arrive several at once, so the time between two of them says little. Answers of one token do not
// count; 0 where nothing does. Pure.
double decode_rate(const std::vector<TimedAnswer>& answers);

}  // namespace llorch::cli
