#include "engine/softmax.h"

#include <algorithm>
#include <array>
#include <bit>
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
constexpr int kHighBits = 20;

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

// No x, none of them above 0, below `least`. By their bits, which takes one instruction: of
// negative floats the larger has the smaller ones.
template <int kLanes>
LLORCH_INLINE void raise_to(typename Vector<kLanes>::Float& x, float least) {
  using UInt = typename Vector<kLanes>::UInt;
  const UInt limit = UInt{} + std::bit_cast<std::uint32_t>(least);
  UInt bits;
  copy_bits(x, bits);
  bits = bits < limit ? bits : limit;
  copy_bits(bits, x);
}

// x: logits → 2^((x - max) * factor) in units of 2^-kUnitBits, not yet cut off. A power of two
// times a polynomial in what remains, |f| <= 1/2; its relative error is 2e-7. The units are in the
// coefficients, as an exact factor: they do not change a rounding.
template <int kLanes, int kUnitBits = kWeightBits>
LLORCH_INLINE void weigh_lanes(typename Vector<kLanes>::Float& x, float max, float factor) {
  using Float = typename Vector<kLanes>::Float;
  using UInt = typename Vector<kLanes>::UInt;
  constexpr float kUnits = static_cast<float>(Weight{1} << kUnitBits);
  Float t = (x - max) * factor;
  raise_to<kLanes>(t, kLowest);
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

// Whether the weights of a group are only bounded where that is enough.
LLORCH_INLINE bool is_light(float maximum, float max, float factor) {
  return (maximum - max) * factor < -16.0F;
}

// Sums of weights in halves of 32 bits: enough for a thousand and some.
template <int kLanes>
struct Halves {
  using Float = typename Vector<kLanes>::Float;
  using Int = typename Vector<kLanes>::Int;

  // Whole weights of a group.
  LLORCH_INLINE void add(const float* group, float max, float factor) {
    for (std::size_t i = 0; i < kGroup; i += kLanes) {
      Float weight;
      std::memcpy(&weight, group + i, sizeof weight);
      weigh_lanes<kLanes, kHighBits>(weight, max, factor);
      const Int upper = __builtin_convertvector(weight, Int);
      const Float rest = weight - __builtin_convertvector(upper, Float);
      high += upper;
      low += __builtin_convertvector(rest * 0x1.0p20F, Int);
    }
  }
  // The same where all upper halves are 0.
  LLORCH_INLINE void add_low(const float* group, float max, float factor) {
    for (std::size_t i = 0; i < kGroup; i += kLanes) {
      Float weight;
      std::memcpy(&weight, group + i, sizeof weight);
      weigh_lanes<kLanes>(weight, max, factor);
      low += __builtin_convertvector(weight, Int);
    }
  }
  LLORCH_INLINE Weight sum() const {
    Weight sum = 0;
    for (int i = 0; i < kLanes; ++i)
      sum += (static_cast<Weight>(high[i]) << kHighBits) + static_cast<Weight>(low[i]);
    return sum;
  }

  Int high = {}, low = {};
};

template <int kLanes>
LLORCH_INLINE Weight sum_groups(std::span<const float> logits, const float* maxima, float max,
                                float factor) {
  // Below this, with room for rounding, the upper halves of all weights of a group are 0.
  constexpr float kLow = -20.5F;
  Halves<kLanes> halves;
  for (std::size_t start = 0; start < logits.size(); start += kGroup) {
    if ((maxima[start / kGroup] - max) * factor < kLow) {
      halves.add_low(logits.data() + start, max, factor);
    } else {
      halves.add(logits.data() + start, max, factor);
    }
  }
  return halves.sum();
}

// x: logits of a light group → 2^((x - max) * factor) in units of 2^-40, between 1 and 1.062 times
// that: the bits of a float are nearly its logarithm, straight between powers of two.
template <int kLanes>
LLORCH_INLINE void weigh_in_haste(typename Vector<kLanes>::Float& x, float max, float factor) {
  using Float = typename Vector<kLanes>::Float;
  using Int = typename Vector<kLanes>::Int;
  constexpr std::int32_t kOne = 1 << 23;
  constexpr float kLeast = -60.0F * kOne;
  Float t = (x - max) * (factor * float{kOne});
  raise_to<kLanes>(t, kLeast);
  const Int bits = __builtin_convertvector(t, Int) + (127 + 40) * kOne;
  copy_bits(bits, x);
}

template <int kLanes>
LLORCH_INLINE Weight split_groups(std::span<const float> logits, const float* maxima, float max,
                                  float factor, float& light) {
  using Float = typename Vector<kLanes>::Float;
  Float sums = {};
  Halves<kLanes> halves;
  for (std::size_t start = 0; start < logits.size(); start += kGroup) {
    const float* maximum = maxima + start / kGroup;
    if (!is_light(*maximum, max, factor)) {
      halves.add(logits.data() + start, max, factor);
      continue;
    }
    for (std::size_t i = 0; i < kGroup; i += kLanes) {
      Float weight;
      std::memcpy(&weight, logits.data() + start + i, sizeof weight);
      weigh_in_haste<kLanes>(weight, max, factor);
      sums += weight;
    }
  }
  for (int i = 0; i < kLanes; ++i) light += sums[i];
  return halves.sum();
}

// Keeps the compiler from reading a vector from memory again for each of its uses: where it lies
// across cache lines, that is what would take the time.
template <class T>
LLORCH_INLINE void load_once([[maybe_unused]] T& vector) {
#if defined(__x86_64__) && !defined(__clang__)
  asm("" : "+x"(vector));
#endif
}

// The largest lane.
template <int kLanes>
LLORCH_INLINE float largest_of(const typename Vector<kLanes>::Float& x) {
  if constexpr (kLanes == 4) {
    return std::max(std::max(x[0], x[1]), std::max(x[2], x[3]));
  } else {
    typename Vector<kLanes / 2>::Float low, high;
    std::memcpy(&low, &x, sizeof low);
    std::memcpy(&high, reinterpret_cast<const char*>(&x) + sizeof low, sizeof high);
    low = low > high ? low : high;
    return largest_of<kLanes / 2>(low);
  }
}

// Floats are compared by their bits, which takes one instruction: as signed numbers they ascend
// from 0 up to infinity and NaN, and of negative ones the largest has the smallest bits.
template <int kLanes>
LLORCH_INLINE bool scan_groups(std::span<const float> logits, float* maxima) {
  using Float = typename Vector<kLanes>::Float;
  using Int = typename Vector<kLanes>::Int;
  using UInt = typename Vector<kLanes>::UInt;
  constexpr std::uint32_t kMinusInfinity = 0xFF800000, kPlusInfinity = 0x7F800000;
  Int highest = {};
  UInt lowest = {};
  for (std::size_t start = 0; start < logits.size(); start += kGroup) {
    Int positive = Int{} - 1;
    UInt negative = UInt{} + kMinusInfinity;
    for (std::size_t i = 0; i < kGroup; i += kLanes) {
      Int x;
      UInt y;
      std::memcpy(&x, logits.data() + start + i, sizeof x);
      load_once(x);
      copy_bits(x, y);
      positive = x > positive ? x : positive;
      negative = y < negative ? y : negative;
      lowest = y > lowest ? y : lowest;
    }
    highest = positive > highest ? positive : highest;
    Int bits;
    copy_bits(negative, bits);
    bits = positive >= 0 ? positive : bits;
    Float largest;
    copy_bits(bits, largest);
    maxima[start / kGroup] = largest_of<kLanes>(largest);
  }
  bool is_finite = true;
  for (int i = 0; i < kLanes; ++i) {
    is_finite = is_finite && static_cast<std::uint32_t>(highest[i]) < kPlusInfinity &&
                lowest[i] <= kMinusInfinity;
  }
  return is_finite;
}

Weight split_plain(std::span<const float> logits, const float* maxima, float max, float factor,
                   float& light) {
  return split_groups<4>(logits, maxima, max, factor, light);
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
[[gnu::target("avx2")]] Weight split_avx2(std::span<const float> logits, const float* maxima,
                                          float max, float factor, float& light) {
  return split_groups<8>(logits, maxima, max, factor, light);
}

#define LLORCH_AVX512 [[gnu::target("avx512f,avx512dq,avx512bw,avx512vl")]]
LLORCH_AVX512 bool scan_avx512(std::span<const float> logits, float* maxima) {
  return scan_groups<16>(logits, maxima);
}
LLORCH_AVX512 Weight sum_avx512(std::span<const float> logits, const float* maxima, float max,
                                float factor) {
  return sum_groups<16>(logits, maxima, max, factor);
}
LLORCH_AVX512 Weight split_avx512(std::span<const float> logits, const float* maxima, float max,
                                  float factor, float& light) {
  return split_groups<16>(logits, maxima, max, factor, light);
}
#endif

std::vector<SoftmaxKernels> find_kernels() {
  std::vector<SoftmaxKernels> kernels = {{"plain", scan_plain, sum_plain, split_plain}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0) {
    kernels.push_back({"avx2", scan_avx2, sum_avx2, split_avx2});
  }
  const bool has_avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  if (has_avx512) kernels.push_back({"avx512", scan_avx512, sum_avx512, split_avx512});
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
  max_ = -kInfinity;
  for (std::size_t start = 0; start < group_max_.size(); start += kGroup) {
    const std::size_t count = std::min(kGroup, group_max_.size() - start);
    float top = 0;
    kernels.scan(filled_up(std::span(group_max_).subspan(start, count)), &top);
    max_ = std::max(max_, top);
  }
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
    : chunk_sums_((vocab_size + kChunk - 1) / kChunk), bounds_(chunk_sums_.size()) {}

// Weights are cut off, which takes up to one unit from each.
void WeightBounds::add(Weight exact, float light, std::size_t num_light) {
  const auto floor = static_cast<Weight>(light * 0.94F);
  least += exact + (floor > num_light ? floor - num_light : 0);
  most += exact + static_cast<Weight>(light * 1.001F) + 1;
}

WeightBounds SoftmaxSums::bound(std::span<const float> logits, const LogitScan& scan,
                                const Weighing& weighing) {
  const SoftmaxKernels& kernels = softmax_kernels().back();
  const std::size_t whole = whole_groups(logits.size());
  WeightBounds bounds;
  for (std::size_t chunk = 0; chunk < bounds_.size(); ++chunk) {
    const std::size_t start = chunk * kChunk;
    const std::size_t end = std::min(start + kChunk, whole);
    const float* maxima = scan.group_max().data() + start / kGroup;
    float light = 0;
    Weight exact = 0;
    if (start < end) {
      exact = kernels.split(logits.subspan(start, end - start), maxima, weighing.max_,
                            weighing.factor_, light);
    }
    if (chunk + 1 == bounds_.size() && whole < logits.size()) {
      const std::array<float, kGroup> last = filled_up(logits.subspan(whole));
      exact +=
          kernels.split(last, &scan.group_max().back(), weighing.max_, weighing.factor_, light);
    }
    bounds.add(exact, light, kChunk);
    bounds_[chunk] = bounds;
  }
  return bounds;
}

// The id that both targets and all between them fall on, if the bounds can tell.
std::optional<std::size_t> SoftmaxSums::find_bounded(std::span<const float> logits,
                                                     const LogitScan& scan,
                                                     const Weighing& weighing, Weight least,
                                                     Weight most) const {
  const SoftmaxKernels& kernels = softmax_kernels().back();
  std::size_t chunk = 0;
  while (chunk < bounds_.size() && bounds_[chunk].least <= most) ++chunk;
  if (chunk == bounds_.size()) return std::nullopt;
  WeightBounds passed = chunk == 0 ? WeightBounds() : bounds_[chunk - 1];
  const std::size_t chunk_end = std::min((chunk + 1) * kChunk, logits.size());
  for (std::size_t start = chunk * kChunk; start < chunk_end; start += kGroup) {
    const std::span<const float> group = logits.subspan(start, std::min(kGroup, chunk_end - start));
    WeightBounds next = passed;
    float light = 0;
    const Weight exact = kernels.split(filled_up(group), &scan.group_max()[start / kGroup],
                                       weighing.max_, weighing.factor_, light);
    next.add(exact, light, kGroup);
    if (next.least > most) {
      std::array<Weight, kGroup> weights;
      weighing.weigh(group, std::span(weights).first(group.size()));
      for (std::size_t i = 0; i < group.size(); ++i) {
        if (passed.least + weights[i] > most)
          return passed.most <= least ? std::optional(start + i) : std::nullopt;
        passed.least += weights[i];
        passed.most += weights[i];
      }
      return std::nullopt;
    }
    passed = next;
  }
  return std::nullopt;
}

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
