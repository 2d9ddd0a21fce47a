// Ops on one row: norms, activations, softcap, softmax, argmax, rotation. Included once per
// instruction set.
#include <hwy/contrib/math/math-inl.h>

#include <cmath>
#include <limits>

#include "compute/cpu/kernels.h"
#include "compute/cpu/vector_inl.h"

#if defined(LLORCH_COMPUTE_CPU_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_ROWS_INL_H
#undef LLORCH_COMPUTE_CPU_ROWS_INL_H
#else
#define LLORCH_COMPUTE_CPU_ROWS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

HWY_MAYBE_UNUSED static void to_halves(const float* x, std::int64_t count, std::uint16_t* out) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SSE4 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  // Where there is no instruction for it, Highway makes numbers of what is none.
  const hn::Rebind<hwy::float16_t, Floats> halves;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::DemoteTo(halves, load(x + i)), halves,
               reinterpret_cast<hwy::float16_t*>(out + i));
  }
#endif
  for (; i < count; ++i) out[i] = tensor::float_to_half(x[i]);
}

HWY_MAYBE_UNUSED static void rms_norm(const float* x, const float* weight, float epsilon,
                                      std::int64_t dim, float* out) {
  const double squares = sum_row(x, dim, 0.0F, [](Vec v) HWY_ATTR { return hn::Mul(v, v); });
  const double mean = squares / static_cast<double>(dim);
  const Vec scale =
      hn::Set(Floats(), static_cast<float>(1.0 / std::sqrt(mean + static_cast<double>(epsilon))));
  map_rows(x, weight, dim, out,
           [scale](Vec v, Vec w) HWY_ATTR { return hn::Mul(hn::Mul(v, scale), w); });
}

HWY_MAYBE_UNUSED static void layer_norm(const float* x, const float* weight, const float* bias,
                                        float epsilon, std::int64_t dim, float* out) {
  const double sum = sum_row(x, dim, 0.0F, [](Vec v) HWY_ATTR { return v; });
  const auto mean = static_cast<float>(sum / static_cast<double>(dim));
  const Vec means = hn::Set(Floats(), mean);
  const double squares = sum_row(x, dim, mean, [means](Vec v) HWY_ATTR {
    const Vec centred = hn::Sub(v, means);
    return hn::Mul(centred, centred);
  });
  const double variance = squares / static_cast<double>(dim);
  const Vec scale = hn::Set(
      Floats(), static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(epsilon))));
  map_rows(x, weight, dim, out,
           [=](Vec v, Vec w) HWY_ATTR { return hn::Mul(hn::Mul(hn::Sub(v, means), scale), w); });
  if (bias != nullptr)
    map_rows(out, bias, dim, out, [](Vec v, Vec b) HWY_ATTR { return hn::Add(v, b); });
}

HWY_INLINE Vec silu(Vec x) {
  // Beyond 88 the exponential overflows; the quotient is as good as zero long before.
  const Vec exponential = hn::Exp(Floats(), hn::Min(hn::Neg(x), hn::Set(Floats(), 88.0F)));
  return hn::Div(x, hn::Add(hn::Set(Floats(), 1.0F), exponential));
}

HWY_INLINE Vec gelu_tanh(Vec x) {
  const Vec cubic = hn::Mul(hn::Mul(hn::Mul(x, x), x), hn::Set(Floats(), 0.044715F));
  const Vec inner = hn::Mul(hn::Add(x, cubic), hn::Set(Floats(), 0.797884560802865F));  // √(2/π)
  const Vec one_plus = hn::Add(hn::Set(Floats(), 1.0F), hn::Tanh(Floats(), inner));
  return hn::Mul(hn::Mul(hn::Set(Floats(), 0.5F), x), one_plus);
}

HWY_INLINE Vec gelu_erf(Vec x) {
  HWY_ALIGN float values[kLanes];
  hn::Store(x, Floats(), values);
  for (float& value : values) value = 0.5F * value * (1.0F + std::erf(value * 0.707106781186548F));
  return hn::Load(Floats(), values);
}

template <class F>
HWY_INLINE void activate_row(const float* x, const float* gate_with, std::int64_t dim, float* out,
                             const F& f) {
  if (gate_with == nullptr) return map_row(x, dim, out, f);
  map_rows(x, gate_with, dim, out, [&f](Vec v, Vec gate) HWY_ATTR { return hn::Mul(f(v), gate); });
}

HWY_MAYBE_UNUSED static void activation(Activation kind, const float* x, const float* gate_with,
                                        std::int64_t dim, float* out) {
  switch (kind) {
    case Activation::GeluTanh:
      return activate_row(x, gate_with, dim, out, [](Vec v) HWY_ATTR { return gelu_tanh(v); });
    case Activation::GeluErf:
      return activate_row(x, gate_with, dim, out, [](Vec v) HWY_ATTR { return gelu_erf(v); });
    case Activation::Silu:
      return activate_row(x, gate_with, dim, out, [](Vec v) HWY_ATTR { return silu(v); });
    case Activation::Relu:
      return activate_row(x, gate_with, dim, out,
                          [](Vec v) HWY_ATTR { return hn::Max(v, hn::Zero(Floats())); });
  }
}

HWY_MAYBE_UNUSED static void softcap(const float* x, std::int64_t dim, float cap, float* out) {
  const Vec caps = hn::Set(Floats(), cap);
  map_row(x, dim, out,
          [caps](Vec v) HWY_ATTR { return hn::Mul(caps, hn::Tanh(Floats(), hn::Div(v, caps))); });
}

HWY_MAYBE_UNUSED static void softmax(const float* x, std::int64_t dim, float* out) {
  if (dim == 0) return;
  Vec maxima = hn::Set(Floats(), x[0]);
  std::int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) maxima = hn::Max(maxima, load(x + i));
  if (i < dim) maxima = hn::Max(maxima, load_part(x + i, dim - i, x[0]));
  const Vec max = hn::Set(Floats(), reduce_max(maxima));
  map_row(x, dim, out, [max](Vec v) HWY_ATTR { return hn::Exp(Floats(), hn::Sub(v, max)); });
  const double sum = sum_row(out, dim, 0.0F, [](Vec v) HWY_ATTR { return v; });
  const Vec scale = hn::Set(Floats(), static_cast<float>(1.0 / sum));
  map_row(out, dim, out, [scale](Vec v) HWY_ATTR { return hn::Mul(v, scale); });
}

// As ArgmaxArgs. Only the run with the largest value is looked through for its place.
HWY_MAYBE_UNUSED static std::int32_t argmax(const float* x, std::int64_t dim) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::int64_t kRun = 64 * kLanes;
  const Vec infinity = hn::Set(Floats(), kInfinity);
  auto is_sound = hn::Lt(hn::Zero(Floats()), infinity);
  float largest = -kInfinity;
  std::int64_t best = 0;
  for (std::int64_t begin = 0; begin < dim; begin += kRun) {
    const std::int64_t end = HWY_MIN(begin + kRun, dim);
    Vec maxima = hn::Neg(infinity);
    const auto take = [&](Vec v) HWY_ATTR {
      is_sound = hn::And(is_sound, hn::Lt(v, infinity));
      maxima = hn::Max(maxima, v);
    };
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) take(load(x + i));
    if (i < end) take(load_part(x + i, end - i, -kInfinity));
    const float max = reduce_max(maxima);
    if (max > largest) {
      largest = max;
      best = begin;
    }
  }
  if (!hn::AllTrue(Floats(), is_sound) || largest == -kInfinity) return -1;
  while (x[best] != largest) ++best;
  return static_cast<std::int32_t>(best);
}

// One head in place. The rest of a range one by one is the same arithmetic as the vectors: two
// products, one sum.
HWY_MAYBE_UNUSED static void rotate(const Rotation& rotation, float* x) {
  const bool adjacent = rotation.style == RopeStyle::Adjacent;
  float* first = x;
  float* second = adjacent ? x + 1 : x + rotation.pairs;
  const std::int64_t step = adjacent ? 2 : 1;
  std::int64_t i = 0;
  for (; i + kLanes <= rotation.pairs; i += kLanes) {
    Vec a;
    Vec b;
    if (adjacent) {
      hn::LoadInterleaved2(Floats(), first + 2 * i, a, b);
    } else {
      a = load(first + i);
      b = load(second + i);
    }
    const Vec cosine = load(rotation.cosines + i);
    const Vec sine = load(rotation.sines + i);
    const Vec rotated_a = hn::Sub(hn::Mul(a, cosine), hn::Mul(b, sine));
    const Vec rotated_b = hn::Add(hn::Mul(a, sine), hn::Mul(b, cosine));
    if (adjacent) {
      hn::StoreInterleaved2(rotated_a, rotated_b, Floats(), first + 2 * i);
    } else {
      hn::StoreU(rotated_a, Floats(), first + i);
      hn::StoreU(rotated_b, Floats(), second + i);
    }
  }
  for (; i < rotation.pairs; ++i) {
    const float a = first[step * i];
    const float b = second[step * i];
    first[step * i] = a * rotation.cosines[i] - b * rotation.sines[i];
    second[step * i] = a * rotation.sines[i] + b * rotation.cosines[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
