#include "engine/softmax.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/check.h"

// Compiled without contraction of products and sums (CMakeLists.txt): one rounding for each
// operation that is written here, whatever the machine.

namespace llorch::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504F;
constexpr float kLowest = -100.0F;     // as a power of two: far below the smallest weight
constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer
// A weight has two halves, for sums of 32 bits: units of 2^-20, and of 2^-40.
constexpr float kHigh = 0x1.0p20F;

template <int kLanes>
struct Vector {
  using Float [[gnu::vector_size(4 * kLanes)]] = float;
  using Int [[gnu::vector_size(4 * kLanes)]] = std::int32_t;
  using UInt [[gnu::vector_size(4 * kLanes)]] = std::uint32_t;
};

// Inlined into functions for one kind of machine each, whose instructions it then uses.
#define LLORCH_INLINE [[gnu::always_inline]] inline

template <class To, class From>
LLORCH_INLINE void copy_bits(const From& from, To& to) {
  static_assert(sizeof(From) == sizeof(To));
  std::memcpy(&to, &from, sizeof to);
}

// x: logits → 2^((x - max) * factor) in units of 2^-40, not yet cut off. A power of two times a
// polynomial in what remains, |f| <= 1/2; its relative error is 2e-7. The units are in the
// coefficients, as an exact factor.
template <int kLanes>
LLORCH_INLINE void weigh_lanes(typename Vector<kLanes>::Float& x, float max, float factor) {
  using Float = typename Vector<kLanes>::Float;
  using UInt = typename Vector<kLanes>::UInt;
  constexpr float kUnits = 0x1.0p40F;
  const Float lowest = Float{} + kLowest;
  Float t = (x - max) * factor;
  t = t > lowest ? t : lowest;
  const Float shifted = t + kRound;
  const Float f = t - (shifted - kRound);
  Float p = f * (kUnits * 1.33813021e-3F) + kUnits * 9.66636837e-3F;
  p = p * f + kUnits * 5.55038117e-2F;
  p = p * f + kUnits * 2.40223497e-1F;
  p = p * f + kUnits * 6.93147182e-1F;
  p = p * f + kUnits;
  UInt power, bits;
  copy_bits(shifted, power);  // its low bits are the integer
  copy_bits(p, bits);
  bits += power << 23;
  copy_bits(bits, x);
}

template <int kLanes>
LLORCH_INLINE Weight sum_groups(std::span<const float> logits, const float* maxima, float max,
                                float factor) {
  using Float = typename Vector<kLanes>::Float;
  using Int = typename Vector<kLanes>::Int;
  // Below this, with room for rounding, the upper halves of all weights of a group are 0.
  constexpr float kLight = -20.5F;
  Int high = {}, low = {};
  for (std::size_t start = 0; start < logits.size(); start += kGroup) {
    const float* group = logits.data() + start;
    const bool is_light = (maxima[start / kGroup] - max) * factor < kLight;
    if (is_light) {
      for (std::size_t i = 0; i < kGroup; i += kLanes) {
        Float weight;
        std::memcpy(&weight, group + i, sizeof weight);
        weigh_lanes<kLanes>(weight, max, factor);
        low += __builtin_convertvector(weight, Int);
      }
    } else {
      for (std::size_t i = 0; i < kGroup; i += kLanes) {
        Float weight;
        std::memcpy(&weight, group + i, sizeof weight);
        weigh_lanes<kLanes>(weight, max, factor);
        const Int upper = __builtin_convertvector(weight * (1 / kHigh), Int);
        const Float rest = weight - __builtin_convertvector(upper, Float) * kHigh;
        high += upper;
        low += __builtin_convertvector(rest, Int);
      }
    }
  }
  Weight sum = 0;
  for (int i = 0; i < kLanes; ++i) {
    sum += (static_cast<Weight>(high[i]) << 20) + static_cast<Weight>(low[i]);
  }
  return sum;
}

template <int kLanes>
LLORCH_INLINE bool scan_groups(std::span<const float> logits, float* maxima) {
  using Float = typename Vector<kLanes>::Float;
  using Int = typename Vector<kLanes>::Int;
  Int finite = Int{} - 1;
  for (std::size_t start = 0; start < logits.size(); start += kGroup) {
    Float largest = Float{} - kInfinity;
    for (std::size_t i = 0; i < kGroup; i += kLanes) {
      Float x;
      std::memcpy(&x, logits.data() + start + i, sizeof x);
      finite &= x < kInfinity;
      largest = x > largest ? x : largest;
    }
    std::array<float, std::size_t{kLanes}> lanes;
    std::memcpy(lanes.data(), &largest, sizeof largest);
    for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
      for (std::size_t i = 0; i < width; ++i) lanes[i] = std::max(lanes[i], lanes[i + width]);
    }
    maxima[start / kGroup] = lanes[0];
  }
  std::int32_t all = -1;
  for (int i = 0; i < kLanes; ++i) all &= finite[i];
  return all != 0;
}

bool scan_plain(std::span<const float> logits, float* maxima) {
  return scan_groups<4>(logits, maxima);
}
Weight sum_plain(std::span<const float> logits, const float* maxima, float max, float factor) {
  return sum_groups<4>(logits, maxima, max, factor);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] bool scan_avx2(std::span<const float> logits, float* maxima) {
  return scan_groups<8>(logits, maxima);
}
[[gnu::target("avx2")]] Weight sum_avx2(std::span<const float> logits, const float* maxima,
                                        float max, float factor) {
  return sum_groups<8>(logits, maxima, max, factor);
}
[[gnu::target("avx512f,avx512dq,avx512bw,avx512vl")]] Weight sum_avx512(
    std::span<const float> logits, const float* maxima, float max, float factor) {
  return sum_groups<16>(logits, maxima, max, factor);
}
#endif

std::vector<SoftmaxKernels> find_kernels() {
  std::vector<SoftmaxKernels> kernels = {{"plain", scan_plain, sum_plain}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) kernels.push_back({"avx2", scan_avx2, sum_avx2});
  const bool has_avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  if (has_avx512) kernels.push_back({"avx512", scan_avx2, sum_avx512});
#endif
  return kernels;
}

// A group that is not whole, filled up with what weighs nothing.
std::array<float, kGroup> filled_up(std::span<const float> logits) {
  std::array<float, kGroup> filled;
  filled.fill(-kInfinity);
  std::ranges::copy(logits, filled.begin());
  return filled;
}

std::size_t whole_groups(std::size_t size) {
  return size / kGroup * kGroup;
}

}  // namespace

std::span<const SoftmaxKernels> softmax_kernels() {
  static const std::vector<SoftmaxKernels> kernels = find_kernels();
  return kernels;
}

LogitScan::LogitScan(std::size_t vocab_size) : group_max_((vocab_size + kGroup - 1) / kGroup) {}

bool LogitScan::run(std::span<const float> logits) {
  const SoftmaxKernels& kernels = softmax_kernels().back();
  const std::size_t whole = whole_groups(logits.size());
  bool is_finite = kernels.scan(logits.first(whole), group_max_.data());
  if (whole < logits.size()) {
    const std::array<float, kGroup> last = filled_up(logits.subspan(whole));
    is_finite = kernels.scan(last, &group_max_.back()) && is_finite;
  }
  max_ = *std::ranges::max_element(group_max_);
  return is_finite;
}

// So large a factor already tells any two different logits apart, and 0 times it is still 0.
Weighing::Weighing(float max, float temperature)
    : max_(max), factor_(std::min(kLog2E / temperature, 1e30F)) {
  DCHECK(temperature > 0 && max > -kInfinity);
}

void Weighing::weigh(std::span<const float> logits, std::span<Weight> weights) const {
  DCHECK(logits.size() == weights.size());
  constexpr std::size_t kLanes = 4;
  for (std::size_t i = 0; i < logits.size(); i += kLanes) {
    const std::size_t count = std::min(kLanes, logits.size() - i);
    Vector<kLanes>::Float x = {};
    if (count == kLanes) {
      std::memcpy(&x, logits.data() + i, sizeof x);
    } else {
      std::memcpy(&x, logits.data() + i, count * sizeof(float));
    }
    weigh_lanes<kLanes>(x, max_, factor_);
    for (std::size_t lane = 0; lane < count; ++lane)
      weights[i + lane] = static_cast<Weight>(static_cast<std::int64_t>(x[lane]));
  }
}

SoftmaxSums::SoftmaxSums(std::size_t vocab_size)
    : chunk_sums_((vocab_size + kChunk - 1) / kChunk) {}

void SoftmaxSums::run(std::span<const float> logits, const LogitScan& scan,
                      const Weighing& weighing) {
  const SoftmaxKernels& kernels = softmax_kernels().back();
  const std::size_t whole = whole_groups(logits.size());
  total_ = 0;
  for (std::size_t chunk = 0; chunk < chunk_sums_.size(); ++chunk) {
    const std::size_t start = chunk * kChunk;
    const std::size_t end = std::min(start + kChunk, whole);
    const float* maxima = scan.group_max().data() + start / kGroup;
    Weight sum = 0;
    if (start < end) {
      sum =
          kernels.sum(logits.subspan(start, end - start), maxima, weighing.max_, weighing.factor_);
    }
    if (chunk + 1 == chunk_sums_.size() && whole < logits.size()) {
      const std::array<float, kGroup> last = filled_up(logits.subspan(whole));
      sum += kernels.sum(last, &scan.group_max().back(), weighing.max_, weighing.factor_);
    }
    chunk_sums_[chunk] = sum;
    total_ += sum;
  }
}

std::size_t SoftmaxSums::find(std::span<const float> logits, const Weighing& weighing,
                              Weight target) const {
  DCHECK(target < total_);
  std::size_t chunk = 0;
  while (target >= chunk_sums_[chunk]) target -= chunk_sums_[chunk++];
  const std::size_t start = chunk * kChunk;
  std::array<Weight, kChunk> weights;
  const std::size_t size = std::min(kChunk, logits.size() - start);
  weighing.weigh(logits.subspan(start, size), std::span(weights).first(size));
  std::size_t id = 0;
  while (target >= weights[id]) target -= weights[id++];
  return start + id;
}

}  // namespace llorch::engine
