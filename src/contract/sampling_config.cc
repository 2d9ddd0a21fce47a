#include "contract/sampling_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <limits>

#include "contract/limits.h"

namespace llorch::contract {
namespace {

float read_float(json::FieldReader& reader, std::string_view field, float fallback,
                 json::NumberRange range) {
  const std::optional<double> number = reader.optional_number(field, range);
  return number ? static_cast<float>(*number) : fallback;
}

// The double with the shortest decimal text that still reads back as this float: 0.7, not
// 0.699999988079071.
double shortest(float value) {
  std::array<char, 32> text;
  const std::to_chars_result written = std::to_chars(text.data(), text.data() + text.size(), value);
  double number = 0;
  std::from_chars(text.data(), written.ptr, number);
  return number;
}

}  // namespace

bool has_advanced_sampling(const SamplingConfig& config) {
  return config.top_p < 1.0F || config.top_k > 0 || config.repetition_penalty != 1.0F ||
         config.min_p > 0.0F;
}

std::string sampling_mode(const SamplingConfig& config) {
  std::vector<std::string> parts;
  // Greedy choice depends on nothing but the order of the logits, which only the penalty changes.
  if (!is_greedy(config)) {
    parts.push_back(fmt::format("temp={:.2f}", config.temperature));
    if (config.top_p < 1.0F) parts.push_back(fmt::format("top_p={:.2f}", config.top_p));
    if (config.top_k > 0) parts.push_back(fmt::format("top_k={}", config.top_k));
  }
  if (config.repetition_penalty != 1.0F) {
    parts.push_back(fmt::format("rep_penalty={:.2f}", config.repetition_penalty));
  }
  if (!is_greedy(config) && config.min_p > 0.0F)
    parts.push_back(fmt::format("min_p={:.2f}", config.min_p));
  if (parts.empty()) return "greedy";
  return fmt::format("{}({})", is_greedy(config) ? "greedy" : "stochastic", fmt::join(parts, ", "));
}

SamplingConfig read_sampling(json::FieldReader& reader) {
  const SamplingConfig defaults;
  SamplingConfig config;
  if (const auto max_tokens = reader.optional_integer("max_tokens", 1, kMaxTokensMax)) {
    config.max_tokens = static_cast<std::int32_t>(*max_tokens);
  }
  config.temperature =
      read_float(reader, "temperature", defaults.temperature, {.min = 0, .max = kTemperatureMax});
  config.top_p = read_float(reader, "top_p", defaults.top_p, {.min = 0, .max = 1});
  config.min_p = read_float(reader, "min_p", defaults.min_p, {.min = 0, .max = 1});
  config.top_k =
      reader.optional_integer("top_k", 0, std::numeric_limits<std::int64_t>::max()).value_or(0);
  config.repetition_penalty =
      read_float(reader, "repetition_penalty", defaults.repetition_penalty,
                 {.min = 0, .max = kRepetitionPenaltyMax, .above_min = true});
  // A positive double below the smallest float: the sampler would divide by zero.
  if (config.repetition_penalty == 0.0F) {
    reader.fail("repetition_penalty", "> 0 and <= 2", "must be above 0 as a 32-bit number");
  }
  config.stop =
      reader.optional_strings("stop", kStopStringsMax, {1, kStopBytesMax}).value_or(defaults.stop);
  config.seed = reader.optional_unsigned("seed");
  return config;
}

void write_sampling(const SamplingConfig& config, json::Object& object) {
  if (config.max_tokens) object["max_tokens"] = *config.max_tokens;
  object["temperature"] = shortest(config.temperature);
  object["top_p"] = shortest(config.top_p);
  object["min_p"] = shortest(config.min_p);
  object["top_k"] = config.top_k;
  object["repetition_penalty"] = shortest(config.repetition_penalty);
  json::Array stop;
  for (const std::string& text : config.stop) stop.emplace_back(text);
  object["stop"] = std::move(stop);
  if (config.seed) object["seed"] = *config.seed;
}

}  // namespace llorch::contract
