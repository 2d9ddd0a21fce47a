#include "compute/quantize_k.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tensor/half.h"

// How a block is found, for all three types. First each group of values alone: several first
// guesses for its step, each improved by turns of rounding the values and solving for the step (and
// the offset) with the least squared error. Then the block: the groups' steps are themselves
// multiples of one half, so that half is chosen, each group's multiple is searched around the
// rounded one, and the half is solved for again with everything else held fixed, as long as the
// error falls. The fixed trip counts of the inner loops are for the compiler, which turns them into
// vector code.
namespace llorch::compute {
namespace {

constexpr int kBlock = 256;
constexpr int kRefinements = 3;  // of a group alone
constexpr int kBlockRounds = 4;  // of the whole block

// Sums are kept in this many places and added at the end, in one order on every machine: the
// compiler may not reorder them itself.
constexpr std::size_t kLanes = 8;
using Lanes = std::array<float, kLanes>;

float total(const Lanes& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

float half_value(std::uint16_t bits) {
  return tensor::half_to_float(bits);
}

bool is_finite_half(std::uint16_t bits) {
  return (bits & 0x7C00U) != 0x7C00U;
}

// The half nearest to `value`; among subnormal halves, which are coarse, the next one away from
// zero, so that multiples still reach `value` and a step never becomes zero.
std::uint16_t covering_half(float value) {
  const std::uint16_t bits = tensor::float_to_half(value);
  const bool is_subnormal = (bits & 0x7C00U) == 0;
  if (is_subnormal && std::abs(half_value(bits)) < std::abs(value))
    return static_cast<std::uint16_t>(bits + 1U);
  return bits;
}

// Far beyond what a half times the largest multiples reaches, and far from where squares overflow.
bool is_out_of_reach(const float* values) {
  constexpr float kLimit = 1e9F;
  return std::any_of(values, values + kBlock, [](float value) { return std::abs(value) > kLimit; });
}

float safe_inverse(float step) {
  const float result = 1.0F / step;
  return std::isfinite(result) ? result : 0.0F;
}

// ---- Q4_K and Q5_K: value ≈ step * quant - offset, quant in 0..highest, offset not negative.

constexpr int kGroups = 8;
constexpr int kGroup = 32;
constexpr int kScaleMax = 63;  // multiples of d and dmin have six bits

using GroupQuants = std::array<float, kGroup>;

struct Line {
  float step = 0;
  float offset = 0;  // subtracted
};

// The nearest quants under `line`.
template <int Highest>
void round_group(const float* values, Line line, GroupQuants& quants) {
  const float scale = safe_inverse(line.step);
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float place = (values[i] + line.offset) * scale + 0.5F;
    const float bounded = std::min(std::max(place, 0.0F), Highest + 0.5F);
    quants[i] = static_cast<float>(static_cast<int>(bounded));
  }
}

float group_error(const float* values, Line line, const GroupQuants& quants) {
  Lanes sums{};
  for (std::size_t i = 0; i < kGroup; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float difference = values[i + lane] + line.offset - line.step * quants[i + lane];
      sums[lane] += difference * difference;
    }
  }
  return total(sums);
}

// Sums over a group: of the quants, their squares, and their products with the values less `mean`.
struct Sums {
  float q = 0, qq = 0, qx = 0;
};

Sums sum_group(const float* values, float mean, const GroupQuants& quants) {
  Lanes q{}, qq{}, qx{};
  for (std::size_t i = 0; i < kGroup; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float quant = quants[i + lane];
      q[lane] += quant;
      qq[lane] += quant * quant;
      qx[lane] += quant * (values[i + lane] - mean);
    }
  }
  return {total(q), total(qq), total(qx)};
}

// The line with the least squared error for these quants; `mean` is that of the values.
Line solve_line(const float* values, float mean, const GroupQuants& quants) {
  const Sums sums = sum_group(values, mean, quants);
  const float spread = sums.qq - sums.q * sums.q / kGroup;
  Line line;
  if (spread > 0) line.step = sums.qx / spread;
  line.offset = line.step * sums.q / kGroup - mean;
  if (line.offset < 0) {  // not storable: the best line through zero
    line.offset = 0;
    line.step = sums.qq > 0 ? (sums.qx + mean * sums.q) / sums.qq : 0.0F;
  }
  line.step = std::max(line.step, 0.0F);
  return line;
}

float mean_of(const float* values) {
  float sum = 0;
  for (int i = 0; i < kGroup; ++i) sum += values[i];
  return sum / kGroup;
}

struct FittedGroup {
  Line line;
  float error = 0;
};

// Keeps `candidate` when it is better, and improves it by turns.
template <int Highest>
void refine_group(const float* values, float mean, Line candidate, FittedGroup& best) {
  GroupQuants quants;
  for (int turn = 0; turn < kRefinements; ++turn) {
    round_group<Highest>(values, candidate, quants);
    candidate = solve_line(values, mean, quants);
    const float error = group_error(values, candidate, quants);
    if (!(error < best.error)) return;
    best = {candidate, error};
  }
}

template <int Highest>
FittedGroup fit_group(const float* values) {
  const auto [low, high] = std::minmax_element(values, values + kGroup);
  const float lowest = std::min(*low, 0.0F);
  const float range = *high - lowest;
  const float mean = mean_of(values);
  FittedGroup best{{0, -lowest}, 0};
  best.error = group_error(values, best.line, GroupQuants{});
  if (range <= 0) return best;
  // From steps a little wider than the range needs to steps that cut off its ends. Values that are
  // all positive cannot be shifted to where the levels are, so there the step alone must be found,
  // and more exactly.
  const int stride = *low > 0 ? 1 : 3;
  for (int guess = -9; guess <= 18; guess += stride) {
    const float levels = Highest + 0.1F * static_cast<float>(guess);
    refine_group<Highest>(values, mean, {range / levels, -lowest}, best);
  }
  return best;
}

// What a block of Q4_K or Q5_K stores, quants apart.
struct GroupScales {
  std::uint16_t d = 0, dmin = 0;  // halves
  std::array<int, kGroups> steps{}, offsets{};

  Line line(std::size_t group) const {
    return {half_value(d) * static_cast<float>(steps[group]),
            half_value(dmin) * static_cast<float>(offsets[group])};
  }
};

int round_scale(float value, float unit) {
  if (unit == 0) return 0;
  return std::clamp(static_cast<int>(std::lround(std::min(value / unit, 1e6F))), 0, kScaleMax);
}

// The best multiples for one group around those that are nearest to `wanted`; returns its error.
template <int Highest>
float search_scales(const float* values, Line wanted, GroupScales& scales, std::size_t group) {
  const int step = round_scale(wanted.step, half_value(scales.d));
  const int offset = round_scale(wanted.offset, half_value(scales.dmin));
  GroupQuants quants;
  float best = INFINITY;
  int best_step = 0, best_offset = 0;
  for (int s = std::max(step - 1, 0); s <= std::min(step + 1, kScaleMax); ++s) {
    for (int o = std::max(offset - 1, 0); o <= std::min(offset + 1, kScaleMax); ++o) {
      scales.steps[group] = s;
      scales.offsets[group] = o;
      const Line line = scales.line(group);
      round_group<Highest>(values, line, quants);
      const float error = group_error(values, line, quants);
      if (error < best) {
        best = error;
        best_step = s;
        best_offset = o;
      }
    }
  }
  scales.steps[group] = best_step;
  scales.offsets[group] = best_offset;
  return best;
}

struct Units {
  double d = 0, dmin = 0;
};

// The d and dmin with the least squared error over the block, all integers held fixed.
template <int Highest>
Units solve_units(const float* values, const GroupScales& scales) {
  double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
  GroupQuants quants;
  for (std::size_t group = 0; group < kGroups; ++group) {
    const float* own = values + group * kGroup;
    round_group<Highest>(own, scales.line(group), quants);
    const float mean = mean_of(own);
    const Sums sums = sum_group(own, mean, quants);
    const double s = scales.steps[group], o = scales.offsets[group];
    aa += s * s * double{sums.qq};
    ab += s * o * double{sums.q};
    bb += o * o * kGroup;
    ax += s * (double{sums.qx} + double{mean} * double{sums.q});
    bx += o * double{mean} * kGroup;
  }
  // value ≈ d * a - dmin * b
  const double determinant = aa * bb - ab * ab;
  if (bb == 0 && aa > 0) return {ax / aa, 0};
  if (determinant <= 1e-9 * aa * bb) return {};
  return {(ax * bb - bx * ab) / determinant, (ax * ab - bx * aa) / determinant};
}

template <int Highest>
GroupScales find_group_scales(const float* values) {
  std::array<Line, kGroups> wanted;
  GroupScales scales;
  float widest = 0, lowest = 0;
  for (std::size_t group = 0; group < kGroups; ++group) {
    wanted[group] = fit_group<Highest>(values + group * kGroup).line;
    widest = std::max(widest, wanted[group].step);
    lowest = std::max(lowest, wanted[group].offset);
  }
  scales.d = covering_half(widest / kScaleMax);
  scales.dmin = covering_half(lowest / kScaleMax);
  GroupScales best = scales;
  float best_error = INFINITY;
  for (int round = 0; round < kBlockRounds; ++round) {
    float error = 0;
    for (std::size_t group = 0; group < kGroups; ++group)
      error += search_scales<Highest>(values + group * kGroup, wanted[group], scales, group);
    if (!(error < best_error)) break;
    best = scales;
    best_error = error;
    const Units units = solve_units<Highest>(values, scales);
    if (!(units.d > 0) || !(units.dmin >= 0)) break;
    scales.d = covering_half(static_cast<float>(units.d));
    scales.dmin = covering_half(static_cast<float>(units.dmin));
    if (!is_finite_half(scales.d) || !is_finite_half(scales.dmin)) break;
  }
  return best;
}

// The 12 bytes of scales: six bits each; the upper two bits of groups 4..7 sit on top of groups
// 0..3.
void pack_scales(const GroupScales& scales, std::uint8_t* to) {
  for (std::size_t group = 0; group < 4; ++group) {
    const auto step = static_cast<unsigned>(scales.steps[group]);
    const auto offset = static_cast<unsigned>(scales.offsets[group]);
    const auto upper_step = static_cast<unsigned>(scales.steps[group + 4]);
    const auto upper_offset = static_cast<unsigned>(scales.offsets[group + 4]);
    to[group] = static_cast<std::uint8_t>(step | (upper_step >> 4) << 6);
    to[group + 4] = static_cast<std::uint8_t>(offset | (upper_offset >> 4) << 6);
    to[group + 8] = static_cast<std::uint8_t>((upper_step & 0xFU) | (upper_offset & 0xFU) << 4);
  }
}

void store_head(const GroupScales& scales, std::uint8_t* block) {
  std::memcpy(block, &scales.d, 2);
  std::memcpy(block + 2, &scales.dmin, 2);
  pack_scales(scales, block + 4);
}

// ---- Q6_K: value ≈ step * quant, quant in -32..31, step a multiple of d in -128..127.

constexpr int kSmallGroups = 16;
constexpr int kSmallGroup = 16;
constexpr int kQuantMin = -32, kQuantMax = 31;

using SmallQuants = std::array<float, kSmallGroup>;

void round_small(const float* values, float step, SmallQuants& quants) {
  const float scale = safe_inverse(step);
  constexpr int kBias = -kQuantMin;  // so that truncation rounds
  for (std::size_t i = 0; i < kSmallGroup; ++i) {
    const float place = values[i] * scale + (kBias + 0.5F);
    const float bounded = std::min(std::max(place, 0.0F), kBias + kQuantMax + 0.5F);
    quants[i] = static_cast<float>(static_cast<int>(bounded) - kBias);
  }
}

float small_error(const float* values, float step, const SmallQuants& quants) {
  Lanes sums{};
  for (std::size_t i = 0; i < kSmallGroup; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float difference = values[i + lane] - step * quants[i + lane];
      sums[lane] += difference * difference;
    }
  }
  return total(sums);
}

// `q` is not needed and left out.
Sums sum_small(const float* values, const SmallQuants& quants) {
  Lanes qq{}, qx{};
  for (std::size_t i = 0; i < kSmallGroup; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      qq[lane] += quants[i + lane] * quants[i + lane];
      qx[lane] += quants[i + lane] * values[i + lane];
    }
  }
  return {0, total(qq), total(qx)};
}

float solve_step(const float* values, const SmallQuants& quants) {
  const Sums sums = sum_small(values, quants);
  return sums.qq > 0 ? sums.qx / sums.qq : 0.0F;
}

float fit_step(const float* values) {
  float extreme = 0;
  for (int i = 0; i < kSmallGroup; ++i) {
    if (std::abs(values[i]) > std::abs(extreme)) extreme = values[i];
  }
  if (extreme == 0) return 0;
  SmallQuants quants;
  float best = 0, best_error = small_error(values, 0, SmallQuants{});
  for (int guess = -16; guess <= 16; guess += 2) {
    // The extreme takes -32 or nearly: the side that reaches farther.
    float step = extreme / (static_cast<float>(kQuantMin) + 0.1F * static_cast<float>(guess));
    for (int turn = 0; turn < kRefinements; ++turn) {
      round_small(values, step, quants);
      step = solve_step(values, quants);
      const float error = small_error(values, step, quants);
      if (!(error < best_error)) break;
      best = step;
      best_error = error;
    }
  }
  return best;
}

struct SmallScales {
  std::uint16_t d = 0;
  std::array<int, kSmallGroups> steps{};

  float step(std::size_t group) const { return half_value(d) * static_cast<float>(steps[group]); }
};

float search_step(const float* values, float wanted, SmallScales& scales, std::size_t group) {
  const float unit = half_value(scales.d);
  const float place = unit == 0 ? 0.0F : std::clamp(wanted / unit, -128.0F, 127.0F);
  const int near = static_cast<int>(std::lround(place));
  SmallQuants quants;
  float best = INFINITY;
  int best_step = 0;
  for (int s = std::max(near - 1, -128); s <= std::min(near + 1, 127); ++s) {
    scales.steps[group] = s;
    round_small(values, scales.step(group), quants);
    const float error = small_error(values, scales.step(group), quants);
    if (error < best) {
      best = error;
      best_step = s;
    }
  }
  scales.steps[group] = best_step;
  return best;
}

float solve_unit(const float* values, const SmallScales& scales) {
  double aa = 0, ax = 0;
  SmallQuants quants;
  for (std::size_t group = 0; group < kSmallGroups; ++group) {
    const float* own = values + group * kSmallGroup;
    round_small(own, scales.step(group), quants);
    const Sums sums = sum_small(own, quants);
    const double s = scales.steps[group];
    aa += s * s * double{sums.qq};
    ax += s * double{sums.qx};
  }
  return aa > 0 ? static_cast<float>(ax / aa) : 0.0F;
}

SmallScales find_small_scales(const float* values) {
  std::array<float, kSmallGroups> wanted;
  float widest = 0;
  for (std::size_t group = 0; group < kSmallGroups; ++group) {
    wanted[group] = fit_step(values + group * kSmallGroup);
    if (std::abs(wanted[group]) > std::abs(widest)) widest = wanted[group];
  }
  SmallScales scales;
  scales.d = covering_half(widest / -128.0F);
  SmallScales best = scales;
  float best_error = INFINITY;
  for (int round = 0; round < kBlockRounds; ++round) {
    float error = 0;
    for (std::size_t group = 0; group < kSmallGroups; ++group)
      error += search_step(values + group * kSmallGroup, wanted[group], scales, group);
    if (!(error < best_error)) break;
    best = scales;
    best_error = error;
    const float unit = solve_unit(values, scales);
    if (unit == 0) break;
    scales.d = covering_half(unit);
    if (!is_finite_half(scales.d)) break;
  }
  return best;
}

}  // namespace

bool encode_q4_k(const float* values, std::uint8_t* block) {
  if (is_out_of_reach(values)) return false;
  const GroupScales scales = find_group_scales<15>(values);
  store_head(scales, block);
  GroupQuants low, high;
  for (std::size_t pair = 0; pair < kGroups / 2; ++pair) {
    round_group<15>(values + 2 * pair * kGroup, scales.line(2 * pair), low);
    round_group<15>(values + (2 * pair + 1) * kGroup, scales.line(2 * pair + 1), high);
    for (std::size_t i = 0; i < kGroup; ++i) {
      block[16 + pair * kGroup + i] = static_cast<std::uint8_t>(
          static_cast<unsigned>(low[i]) | static_cast<unsigned>(high[i]) << 4);
    }
  }
  return is_finite_half(scales.d) && is_finite_half(scales.dmin);
}

bool encode_q5_k(const float* values, std::uint8_t* block) {
  if (is_out_of_reach(values)) return false;
  const GroupScales scales = find_group_scales<31>(values);
  store_head(scales, block);
  std::uint8_t* fifth_bits = block + 16;
  std::uint8_t* nibbles = block + 48;
  std::memset(fifth_bits, 0, 32);
  std::memset(nibbles, 0, 128);
  GroupQuants quants;
  for (std::size_t group = 0; group < kGroups; ++group) {
    round_group<31>(values + group * kGroup, scales.line(group), quants);
    for (std::size_t i = 0; i < kGroup; ++i) {
      const auto quant = static_cast<unsigned>(quants[i]);
      std::uint8_t& nibble = nibbles[group / 2 * kGroup + i];
      nibble = static_cast<std::uint8_t>(nibble | (quant & 0xFU) << (group % 2 * 4));
      fifth_bits[i] = static_cast<std::uint8_t>(fifth_bits[i] | (quant >> 4) << group);
    }
  }
  return is_finite_half(scales.d) && is_finite_half(scales.dmin);
}

bool encode_q6_k(const float* values, std::uint8_t* block) {
  if (is_out_of_reach(values)) return false;
  const SmallScales scales = find_small_scales(values);
  std::memset(block, 0, 192);
  SmallQuants quants;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const std::size_t group = i / kSmallGroup;
    if (i % kSmallGroup == 0) {
      round_small(values + i, scales.step(group), quants);
      block[192 + group] = static_cast<std::uint8_t>(scales.steps[group]);
    }
    const auto quant = static_cast<unsigned>(static_cast<int>(quants[i % kSmallGroup]) - kQuantMin);
    const std::size_t half = i / 128, quarter = i % 128 / 32;
    std::uint8_t& nibble = block[half * 64 + quarter % 2 * 32 + i % 32];
    std::uint8_t& pairs = block[128 + half * 32 + i % 32];
    nibble = static_cast<std::uint8_t>(nibble | (quant & 0xFU) << (quarter / 2 * 4));
    pairs = static_cast<std::uint8_t>(pairs | (quant >> 4) << (quarter * 2));
  }
  std::memcpy(block + 208, &scales.d, 2);
  return is_finite_half(scales.d);
}

}  // namespace llorch::compute
