#include "model/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace llorch::model {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;
constexpr std::int32_t kRotaryDimMax = 1024;

Status check(const RopeParameters& rope) {
  if (rope.rotary_dim < 2 || rope.rotary_dim > kRotaryDimMax || rope.rotary_dim % 2 != 0) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("rotary positions cover {} values of a head, expected an even 2..{}",
                             rope.rotary_dim, kRotaryDimMax)};
  }
  const bool stretched = rope.scaling == RopeScaling::Llama3 || rope.scaling == RopeScaling::Yarn;
  for (const auto& [what, value, above] :
       {std::tuple{"rope theta", rope.theta, 1.0},
        std::tuple{"rope scaling factor", rope.factor, 0.0},
        std::tuple{"rope original context", stretched ? rope.original_context : 1.0, 0.0},
        std::tuple{"rope beta_fast", rope.beta_fast, 0.0},
        std::tuple{"rope beta_slow", rope.beta_slow, 0.0},
        std::tuple{"rope low_freq_factor", rope.low_freq_factor, 0.0},
        std::tuple{"rope high_freq_factor", rope.high_freq_factor, rope.low_freq_factor},
        std::tuple{"rope attention factor", rope.attention_factor.value_or(1), 0.0}}) {
    if (std::isfinite(value) && value > above) continue;
    return Error{ErrorCode::Corrupt,
                 fmt::format("{} is {}, expected a number above {}", what, value, above)};
  }
  const auto pairs = static_cast<std::size_t>(rope.rotary_dim / 2);
  if (!rope.divisors.empty() && rope.divisors.size() != pairs) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{} rope factors, expected {}: one per rotated pair",
                             rope.divisors.size(), pairs)};
  }
  for (const double divisor : rope.divisors) {
    if (std::isfinite(divisor) && divisor > 0) continue;
    return Error{ErrorCode::Corrupt,
                 fmt::format("a rope factor is {}, expected a positive number", divisor)};
  }
  return ok_status();
}

double scale_llama3(const RopeParameters& rope, double frequency) {
  const double wavelength = kTurn / frequency;
  if (wavelength < rope.original_context / rope.high_freq_factor) return frequency;
  if (wavelength > rope.original_context / rope.low_freq_factor) return frequency / rope.factor;
  const double kept = (rope.original_context / wavelength - rope.low_freq_factor) /
                      (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - kept) * frequency / rope.factor + kept * frequency;
}

// The dimension whose wavelength fits `turns` times into the original context.
double yarn_dimension(const RopeParameters& rope, double turns) {
  return rope.rotary_dim * std::log(rope.original_context / (turns * kTurn)) /
         (2 * std::log(rope.theta));
}

double scale_yarn(const RopeParameters& rope, int pair, double frequency) {
  double low = yarn_dimension(rope, rope.beta_fast);
  double high = yarn_dimension(rope, rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_dim - 1.0);
  if (low == high) high += 0.001;
  const double interpolated = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return frequency / rope.factor * interpolated + frequency * (1 - interpolated);
}

double magnitude_of(const RopeParameters& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.factor <= 1) return 1;
  if (rope.scaling == RopeScaling::Yarn) return 0.1 * std::log(rope.factor) + 1;
  if (rope.scaling == RopeScaling::LongRope)
    return std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_context));
  return 1;
}

}  // namespace

Result<RopeConfig> make_rope(const RopeParameters& rope, compute::RopeStyle style) {
  if (Status valid = check(rope); !valid.ok()) return valid.error();
  RopeConfig config{
      .style = style, .magnitude = static_cast<float>(magnitude_of(rope)), .recipe = rope};
  for (int pair = 0; pair < rope.rotary_dim / 2; ++pair) {
    double frequency = std::pow(rope.theta, -2.0 * pair / rope.rotary_dim);
    switch (rope.scaling) {
      case RopeScaling::None:
      case RopeScaling::LongRope:
        break;
      case RopeScaling::Linear:
        frequency /= rope.factor;
        break;
      case RopeScaling::Llama3:
        frequency = scale_llama3(rope, frequency);
        break;
      case RopeScaling::Yarn:
        frequency = scale_yarn(rope, pair, frequency);
        break;
    }
    if (!rope.divisors.empty()) frequency /= rope.divisors[static_cast<std::size_t>(pair)];
    config.frequencies.push_back(static_cast<float>(frequency));
  }
  return config;
}

std::string describe_scaling(const RopeConfig& rope, std::int32_t context) {
  const RopeParameters& recipe = rope.recipe;
  if (recipe.long_factors) {
    return fmt::format("LongRoPE: the {} factors, because the context of {} is {} the original {}",
                       *recipe.long_factors ? "long" : "short", context,
                       *recipe.long_factors ? "above" : "within", recipe.original_context);
  }
  if (recipe.scaling == RopeScaling::Yarn) {
    return fmt::format("YaRN: stretched by {} from a context of {}, attention factor {:.4g}",
                       recipe.factor, recipe.original_context, rope.magnitude);
  }
  return {};
}

}  // namespace llorch::model
