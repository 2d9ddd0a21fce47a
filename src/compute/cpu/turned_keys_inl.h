// Products of cached keys with queries where lanes are keys: as many keys as there are lanes are
// turned around in registers. Included once per instruction set.
#include <type_traits>

#include "compute/cpu/attention_keys_inl.h"

#if defined(LLORCH_COMPUTE_CPU_TURNED_KEYS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_TURNED_KEYS_INL_H
#undef LLORCH_COMPUTE_CPU_TURNED_KEYS_INL_H
#else
#define LLORCH_COMPUTE_CPU_TURNED_KEYS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR  // there is nothing to turn

// Values at .. at + kLanes of a cached vector.
HWY_INLINE Vec load_values(const float* vector, std::int64_t at) {
  return load(vector + at);
}
HWY_INLINE Vec load_values(const Half* vector, std::int64_t at) {
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_EMU128
  // Where there is no instruction for it, Highway makes numbers of what is none.
  HWY_ALIGN float values[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) values[i] = to_float(vector[at + i]);
  return hn::Load(Floats(), values);
#else
  return load(vector + at);
#endif
}
HWY_INLINE Vec load_values(const QuantBlock* vector, std::int64_t at) {
  const QuantBlock& block = vector[at / 32];
  const hn::Rebind<std::int8_t, Floats> bytes;
  const hn::RebindToSigned<Floats> ints;
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_EMU128
  const Vec scale = hn::Set(Floats(), tensor::half_to_float(block.scale));
#else
  const hn::Rebind<std::uint16_t, Floats> words;
  const hn::Rebind<hwy::float16_t, Floats> halves;
  const Vec scale = hn::PromoteTo(Floats(), hn::BitCast(halves, hn::Set(words, block.scale)));
#endif
  const Vec numbers =
      hn::ConvertTo(Floats(), hn::PromoteTo(ints, hn::LoadU(bytes, block.quants + at % 32)));
  return hn::Mul(numbers, scale);
}

// Lane i of vector d becomes lane d of vector i. Each round takes even lanes to the first half of
// the vectors and odd ones to the second.
HWY_INLINE void turn(Vec* vectors) {
  for (std::int64_t round = 1; round < kLanes; round *= 2) {
    Vec next[kLanes];
    for (std::int64_t i = 0; i < kLanes / 2; ++i) {
      const Vec low = vectors[2 * i];
      const Vec high = vectors[2 * i + 1];
      next[i] = hn::ConcatEven(Floats(), high, low);
      next[i + kLanes / 2] = hn::ConcatOdd(Floats(), high, low);
    }
    for (std::int64_t i = 0; i < kLanes; ++i) vectors[i] = next[i];
  }
}

template <int Heads>
HWY_INLINE void add_products(Vec values, const float* queries, Vec* sums) {
#pragma GCC unroll 8
  for (int h = 0; h < Heads; ++h)
    sums[h] = hn::MulAdd(values, hn::Set(Floats(), queries[h]), sums[h]);
}

// sums[head] += values d .. end of kLanes keys · those of the head's query.
template <int Heads, class T>
HWY_INLINE void add_stretch(const T* const* keys, std::int64_t offset, std::int64_t begin,
                            std::int64_t end, const float* queries, Vec* sums) {
  for (std::int64_t d = begin; d < end; d += kLanes) {
    Vec values[kLanes];
    for (std::int64_t i = 0; i < kLanes; ++i) values[i] = load_values(keys[i] + offset, d);
    turn(values);
    for (std::int64_t i = 0; i < kLanes; ++i)
      add_products<Heads>(values[i], queries + (d + i) * Heads, sums);
  }
}

#if HWY_TARGET == HWY_AVX3
// Values d .. d + 32 of eight keys: of each eighth of a vector becomes value j vector j, the eight
// keys side by side.
HWY_INLINE void turn_eight(const Half* const* keys, std::int64_t at, __m512i* turned) {
  __m512i a[8];
  __m512i b[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) a[i] = _mm512_loadu_si512(keys[i] + at);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm512_unpacklo_epi16(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi16(a[i], a[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    a[i] = _mm512_unpacklo_epi32(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi32(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi32(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi32(b[i + 1], b[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    turned[2 * i] = _mm512_unpacklo_epi64(a[i], a[i + 4]);
    turned[2 * i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 4]);
  }
}

template <int Heads>
HWY_INLINE void add_eight(const __m512i* pairs, bool upper, const float* queries, Vec* sums) {
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m256i halves =
        upper ? _mm512_extracti64x4_epi64(pairs[j], 1) : _mm512_castsi512_si256(pairs[j]);
    Vec values;
    values.raw = _mm512_cvtph_ps(halves);
    add_products<Heads>(values, queries + j * Heads, sums);
  }
}

// The same for 32 halves of sixteen keys, turned around before they become floats: half of the
// shuffles.
template <int Heads>
HWY_INLINE void add_halves(const Half* const* keys, std::int64_t offset, std::int64_t d,
                           const float* queries, Vec* sums) {
  __m512i low[8];
  __m512i high[8];
  turn_eight(keys, offset + d, low);
  turn_eight(keys + 8, offset + d, high);
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  __m512i pairs[8];
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) pairs[j] = _mm512_permutex2var_epi64(low[j], first, high[j]);
  const float* q = queries + d * Heads;
  add_eight<Heads>(pairs, false, q, sums);
  add_eight<Heads>(pairs, true, q + std::ptrdiff_t{8} * Heads, sums);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) pairs[j] = _mm512_permutex2var_epi64(low[j], second, high[j]);
  add_eight<Heads>(pairs, false, q + std::ptrdiff_t{16} * Heads, sums);
  add_eight<Heads>(pairs, true, q + std::ptrdiff_t{24} * Heads, sums);
}
#endif

// sums[head] += values begin .. end of kLanes keys · those of the head's query, in their order.
template <int Heads, class T>
HWY_INLINE void multiply_keys(const T* const* keys, std::int64_t offset, std::int64_t begin,
                              std::int64_t end, const float* queries, Vec* sums) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, Half>) {
    if (end - begin == 32) return add_halves<Heads>(keys, offset, begin, queries, sums);
  }
#endif
  add_stretch<Heads>(keys, offset, begin, end, queries, sums);
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
