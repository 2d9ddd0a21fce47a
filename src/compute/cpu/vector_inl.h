// The vector type of one instruction set, loads of every stored number, and partial vectors at the
// end of a row. Included once per instruction set.
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "tensor/half.h"

#if defined(LLORCH_COMPUTE_CPU_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_VECTOR_INL_H
#undef LLORCH_COMPUTE_CPU_VECTOR_INL_H
#else
#define LLORCH_COMPUTE_CPU_VECTOR_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sixteen lanes at most: half of the smallest weight block, so that a block is always whole
// vectors.
using Floats = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Floats>;
constexpr std::int64_t kLanes = HWY_MIN(HWY_LANES(float), 16);

struct Half {
  std::uint16_t bits;
};
struct Bfloat16 {
  std::uint16_t bits;
};

HWY_INLINE Vec load(const float* p) {
  return hn::LoadU(Floats(), p);
}
HWY_INLINE Vec load(const Half* p) {
  const hn::Rebind<hwy::float16_t, Floats> d;
  return hn::PromoteTo(Floats(), hn::LoadU(d, reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE Vec load(const Bfloat16* p) {
  const hn::Rebind<std::uint16_t, Floats> d16;
  const hn::RebindToUnsigned<Floats> d32;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}

HWY_INLINE float to_float(float value) {
  return value;
}
HWY_INLINE float to_float(Half value) {
  return tensor::half_to_float(value.bits);
}
HWY_INLINE float to_float(Bfloat16 value) {
  return tensor::bfloat16_to_float(value.bits);
}

HWY_INLINE float reduce_sum(Vec v) {
  return hn::GetLane(hn::SumOfLanes(Floats(), v));
}
HWY_INLINE float reduce_max(Vec v) {
#if HWY_TARGET == HWY_EMU128
  // Highway's own begins with the lowest finite number here, and -infinity is below that.
  float max = hn::GetLane(v);
  for (std::size_t i = 1; i < kLanes; ++i) max = HWY_MAX(max, hn::ExtractLane(v, i));
  return max;
#else
  return hn::GetLane(hn::MaxOfLanes(Floats(), v));
#endif
}

// The first `count` (< kLanes) values at p, then `padding`; reads nothing beyond them.
HWY_INLINE Vec load_part(const float* p, std::int64_t count, float padding) {
  HWY_ALIGN float values[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) values[i] = i < count ? p[i] : padding;
  return hn::Load(Floats(), values);
}
HWY_INLINE void store_part(Vec v, float* p, std::int64_t count) {
  HWY_ALIGN float values[kLanes];
  hn::Store(v, Floats(), values);
  for (std::int64_t i = 0; i < count; ++i) p[i] = values[i];
}

// out[i] = f(x[i]) for a whole row: the last, partial vector goes through the same f, so that a
// value never depends on where in the row it stands.
template <class F>
HWY_INLINE void map_row(const float* x, std::int64_t dim, float* out, const F& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) hn::StoreU(f(load(x + i)), Floats(), out + i);
  if (i < dim) store_part(f(load_part(x + i, dim - i, 0.0F)), out + i, dim - i);
}

// The same with a second input; y may be null only where dim is 0.
template <class F>
HWY_INLINE void map_rows(const float* x, const float* y, std::int64_t dim, float* out, const F& f) {
  std::int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) hn::StoreU(f(load(x + i), load(y + i)), Floats(), out + i);
  if (i < dim) {
    const std::int64_t rest = dim - i;
    store_part(f(load_part(x + i, rest, 0.0F), load_part(y + i, rest, 0.0F)), out + i, rest);
  }
}

// Sum of f(x[i]): short runs in float lanes, the runs together in double, so that 152 thousand tiny
// values still count. `padding` is a value for which f is 0.
template <class F>
HWY_INLINE double sum_row(const float* x, std::int64_t dim, float padding, const F& f) {
  constexpr std::int64_t kRun = 64 * kLanes;
  double total = 0;
  std::int64_t i = 0;
  while (i + kLanes <= dim) {
    Vec sum = hn::Zero(Floats());
    const std::int64_t end = HWY_MIN(i + kRun, dim);
    for (; i + kLanes <= end; i += kLanes) sum = hn::Add(sum, f(load(x + i)));
    total += static_cast<double>(reduce_sum(sum));
  }
  if (i < dim) total += static_cast<double>(reduce_sum(f(load_part(x + i, dim - i, padding))));
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
