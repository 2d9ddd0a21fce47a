#include "engine/softmax.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace llorch::engine {
namespace {

using Float4 [[gnu::vector_size(16)]] = float;
using Int4 [[gnu::vector_size(16)]] = std::int32_t;
using UInt4 [[gnu::vector_size(16)]] = std::uint32_t;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Float4 kLowest = {-87.0F, -87.0F, -87.0F, -87.0F};
constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer

// Calls body(values) for each four of the group; a last group that is shorter is filled up with
// -infinity first, so that the common case is a loop of known length.
template <class Body>
inline void for_each_four(std::span<const float> part, const Body& body) {
  std::array<float, kGroup> filled;
  const float* data = part.data();
  if (part.size() < kGroup) {
    filled.fill(-kInfinity);
    std::ranges::copy(part, filled.begin());
    data = filled.data();
  }
  for (std::size_t i = 0; i < kGroup; i += 4) {
    Float4 x;
    std::memcpy(&x, data + i, sizeof x);
    body(x);
  }
}

inline std::span<const float> group_of(std::span<const float> values, std::size_t group) {
  return values.subspan(group * kGroup, std::min(kGroup, values.size() - group * kGroup));
}

// exp of four numbers <= 0: a power of two times a polynomial in what remains, |r| <= ln(2) / 2.
inline void exp_nonpositive(Float4& x) {
  const Int4 counts = x >= kLowest;
  x = x > kLowest ? x : kLowest;
  const Float4 shifted = x * 1.44269504F + kRound;
  const Float4 power = shifted - kRound;
  const Float4 r = (x - power * 0.693359375F) - power * -2.12194440e-4F;  // ln(2) in two parts
  Float4 p = r * (1.0F / 720) + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  UInt4 bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3f800000U;  // The low bits of `shifted` are the integer.
  Float4 scale;
  std::memcpy(&scale, &bits, sizeof scale);
  p *= scale;
  Int4 masked;
  std::memcpy(&masked, &p, sizeof masked);
  masked &= counts;
  std::memcpy(&x, &masked, sizeof x);
}

}  // namespace

LogitScan::LogitScan(std::size_t vocab_size) : group_max_((vocab_size + kGroup - 1) / kGroup) {}

bool LogitScan::run(std::span<const float> logits) {
  Int4 finite = {-1, -1, -1, -1};
  max_ = -kInfinity;
  for (std::size_t group = 0; group < group_max_.size(); ++group) {
    Float4 largest = {-kInfinity, -kInfinity, -kInfinity, -kInfinity};
    for_each_four(group_of(logits, group), [&](const Float4& x) {
      finite &= x < kInfinity;
      largest = x > largest ? x : largest;
    });
    group_max_[group] =
        std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
    max_ = std::max(max_, group_max_[group]);
  }
  return (finite[0] & finite[1] & finite[2] & finite[3]) != 0;
}

SoftmaxWeights::SoftmaxWeights(std::size_t vocab_size)
    : vocab_size_(vocab_size), group_sums_((vocab_size + kGroup - 1) / kGroup) {
  weights_.resize(group_sums_.size() * kGroup);
}

void SoftmaxWeights::run(std::span<const float> logits, float max, float temperature) {
  DCHECK(logits.size() == vocab_size_ && temperature > 0 && max > -kInfinity);
  // So large a factor already tells any two different logits apart, and 0 times it is still 0.
  const float factor = std::min(1.0F / temperature, 1e30F);
  total_ = 0;
  float* out = weights_.data();
  for (std::size_t group = 0; group < group_sums_.size(); ++group) {
    Float4 sum = {};  // Of sixteen numbers each: as exact as the numbers are.
    for_each_four(group_of(logits, group), [&](const Float4& logit) {
      Float4 x = (logit - max) * factor;
      exp_nonpositive(x);
      std::memcpy(out, &x, sizeof x);
      out += 4;
      sum += x;
    });
    group_sums_[group] = (static_cast<double>(sum[0]) + static_cast<double>(sum[1])) +
                         (static_cast<double>(sum[2]) + static_cast<double>(sum[3]));
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
  const std::size_t end = std::min((chosen + 1) * kGroup, vocab_size_);
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
