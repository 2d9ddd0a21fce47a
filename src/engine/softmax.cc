#include "engine/softmax.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace llorch::engine {
namespace {

using Float4 [[gnu::vector_size(16)]] = float;
using Int4 [[gnu::vector_size(16)]] = std::int32_t;
using Double4 [[gnu::vector_size(32)]] = double;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Up to four of the values at `data`; what is missing weighs nothing.
inline void load(const float* data, std::size_t count, Float4& out) {
  out = Float4{-kInfinity, -kInfinity, -kInfinity, -kInfinity};
  std::memcpy(&out, data, std::min<std::size_t>(count, 4) * sizeof(float));
}

// exp of four numbers <= 0: a power of two times a polynomial in what remains, |r| <= ln(2) / 2.
inline void exp_nonpositive(Float4& x) {
  constexpr float kLowest = -87.0F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer
  const Int4 counts = x >= kLowest;
  x = counts ? x : Float4{};
  const Float4 shifted = x * 1.44269504F + kRound;
  const Float4 power = shifted - kRound;
  const Float4 r = (x - power * 0.693359375F) - power * -2.12194440e-4F;
  Float4 p = r * (1.0F / 5040) + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  Int4 bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3f800000;  // The low bits of `shifted` are the integer.
  Float4 scale;
  std::memcpy(&scale, &bits, sizeof scale);
  x = counts ? p * scale : Float4{};
}

}  // namespace

LogitScan::LogitScan(std::size_t vocab_size) : group_max_((vocab_size + kGroup - 1) / kGroup) {}

bool LogitScan::run(std::span<const float> logits) {
  Int4 finite = {-1, -1, -1, -1};
  max_ = -kInfinity;
  for (std::size_t group = 0; group < group_max_.size(); ++group) {
    const std::span<const float> part =
        logits.subspan(group * kGroup, std::min(kGroup, logits.size() - group * kGroup));
    Float4 largest = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
    for (std::size_t i = 0; i < part.size(); i += 4) {
      Float4 x;
      load(part.data() + i, part.size() - i, x);
      finite &= x < kInfinity;
      largest = x > largest ? x : largest;
    }
    group_max_[group] =
        std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
    max_ = std::max(max_, group_max_[group]);
  }
  return (finite[0] & finite[1] & finite[2] & finite[3]) != 0;
}

SoftmaxWeights::SoftmaxWeights(std::size_t vocab_size)
    : weights_(vocab_size), group_sums_((vocab_size + kGroup - 1) / kGroup) {}

void SoftmaxWeights::run(std::span<const float> logits, float max, float temperature) {
  DCHECK(logits.size() == weights_.size() && temperature > 0 && max > -kInfinity);
  // So large a factor already tells any two different logits apart, and 0 times it is still 0.
  const float factor = std::min(1.0F / temperature, 1e30F);
  total_ = 0;
  for (std::size_t group = 0; group < group_sums_.size(); ++group) {
    const std::size_t start = group * kGroup;
    const std::size_t count = std::min(kGroup, weights_.size() - start);
    Double4 sum = {};
    for (std::size_t i = 0; i < count; i += 4) {
      Float4 x;
      load(logits.data() + start + i, count - i, x);
      x = (x - max) * factor;
      exp_nonpositive(x);
      std::memcpy(weights_.data() + start + i, &x,
                  std::min<std::size_t>(count - i, 4) * sizeof(float));
      sum += __builtin_convertvector(x, Double4);
    }
    group_sums_[group] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    total_ += group_sums_[group];
  }
}

std::size_t SoftmaxWeights::find(double target) const {
  double passed = 0;
  std::size_t group = 0;
  // The last group with weight takes what rounding leaves over.
  std::size_t chosen = 0;
  for (; group < group_sums_.size(); ++group) {
    if (group_sums_[group] == 0) continue;
    chosen = group;
    if (passed + group_sums_[group] > target) break;
    passed += group_sums_[group];
  }
  if (group == group_sums_.size()) passed -= group_sums_[chosen];
  const std::size_t end = std::min((chosen + 1) * kGroup, weights_.size());
  std::size_t last = chosen * kGroup;
  for (std::size_t id = chosen * kGroup; id < end; ++id) {
    if (weights_[id] == 0) continue;
    last = id;
    passed += static_cast<double>(weights_[id]);
    if (passed > target) break;
  }
  return last;
}

}  // namespace llorch::engine
