// What both ways to attend share: keys and values of a paged cache as floats, which of them a query
// sees, and how chunks of them become one. Included once per instruction set.
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "compute/cpu/kernels.h"
#include "compute/cpu/vector_inl.h"

#if defined(LLORCH_COMPUTE_CPU_ATTENTION_KEYS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_ATTENTION_KEYS_INL_H
#undef LLORCH_COMPUTE_CPU_ATTENTION_KEYS_INL_H
#else
#define LLORCH_COMPUTE_CPU_ATTENTION_KEYS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

// A block of a Q8_0 cache; a head is a run of them.
struct QuantBlock {
  std::uint16_t scale;  // a half
  std::int8_t quants[32];
};
static_assert(sizeof(QuantBlock) == 34);

constexpr std::int64_t whole_vectors(std::int64_t count) {
  return (count + kLanes - 1) / kLanes * kLanes;
}

HWY_INLINE void widen(const float* from, std::int64_t dim, float* to) {
  std::memcpy(to, from, static_cast<std::size_t>(dim) * sizeof(float));
}
HWY_INLINE void widen(const Half* from, std::int64_t dim, float* to) {
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SSE4 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  // Where there is no instruction for it, Highway makes numbers of what is none.
  for (; i + kLanes <= dim; i += kLanes) hn::StoreU(load(from + i), Floats(), to + i);
#endif
  for (; i < dim; ++i) to[i] = to_float(from[i]);
}
HWY_INLINE void widen(const QuantBlock* from, std::int64_t dim, float* to) {
  const hn::Rebind<std::int8_t, Floats> bytes;
  const hn::RebindToSigned<Floats> ints;
  for (std::int64_t block = 0; block < dim / 32; ++block, ++from, to += 32) {
    const Vec scale = hn::Set(Floats(), tensor::half_to_float(from->scale));
    for (std::int64_t i = 0; i < 32; i += kLanes) {
      const Vec numbers =
          hn::ConvertTo(Floats(), hn::PromoteTo(ints, hn::LoadU(bytes, from->quants + i)));
      hn::StoreU(hn::Mul(numbers, scale), Floats(), to + i);
    }
  }
}

// Calls visit(vectors, index, count) for keys or values begin + index … that lie side by side, i.e.
// within one block, for indices from..to.
template <class T, class F>
HWY_INLINE void each_run(const AttendTile& tile, const void* cache, std::int64_t block_stride,
                         std::int64_t begin, std::int64_t from, std::int64_t to, const F& visit) {
  constexpr std::int64_t kValues = sizeof(T) == sizeof(QuantBlock) ? 32 : 1;
  std::int64_t block = (begin + from) / tile.block_tokens;
  std::int64_t offset = (begin + from) % tile.block_tokens;
  for (std::int64_t i = from; i < to; ++block, offset = 0) {
    const std::int64_t count = HWY_MIN(tile.block_tokens - offset, to - i);
    const std::int64_t at =
        tile.table[block] * block_stride + tile.head_offset + offset * tile.head_dim;
    visit(static_cast<const T*>(cache) + at / kValues, i, count);
    i += count;
  }
}

// Asks for what will be fetched next. Inlined by force: to gcc a function that does nothing else
// does nothing, and its calls are left out.
template <class T>
HWY_INLINE void ask_ahead(const AttendTile& tile, const void* cache, std::int64_t block_stride,
                          std::int64_t begin, std::int64_t from, std::int64_t to) {
  constexpr std::int64_t kLine = 64;
  const std::int64_t bytes = tile.head_dim * static_cast<std::int64_t>(sizeof(T)) /
                             (sizeof(T) == sizeof(QuantBlock) ? 32 : 1);
  each_run<T>(
      tile, cache, block_stride, begin, from,
      to, [&](const T* vectors, std::int64_t, std::int64_t count) __attribute__((always_inline)) {
        const auto* first = reinterpret_cast<const char*>(vectors);
        for (std::int64_t at = 0; at < count * bytes; at += kLine) __builtin_prefetch(first + at);
      });
}

// Keys or values begin .. begin + count of the sequence as floats, zeros for those before `first`
// and up to `all`; they stand `stride` apart.
template <class T>
HWY_INLINE void fetch(const AttendTile& tile, const void* cache, std::int64_t block_stride,
                      std::int64_t first, std::int64_t begin, std::int64_t count, std::int64_t all,
                      std::int64_t stride, float* out) {
  constexpr std::int64_t kValues = sizeof(T) == sizeof(QuantBlock) ? 32 : 1;
  const std::int64_t hidden = std::max<std::int64_t>(first - begin, 0);
  std::fill_n(out, hidden * stride, 0.0F);
  each_run<T>(tile, cache, block_stride, begin, hidden, count,
              [&](const T* vectors, std::int64_t index, std::int64_t run) HWY_ATTR {
                for (std::int64_t i = 0; i < run; ++i) {
                  widen(vectors + i * tile.head_dim / kValues, tile.head_dim,
                        out + (index + i) * stride);
                }
              });
  std::fill_n(out + count * stride, (all - count) * stride, 0.0F);
}

// The keys of a tile that a query sees: from ≤ index < to.
struct Seen {
  std::int64_t from, to;
};
HWY_INLINE Seen seen_by(const AttendTile& tile, std::int64_t query, std::int64_t begin,
                        std::int64_t count) {
  const std::int64_t position = tile.first_position + query / tile.heads;
  const std::int64_t first = tile.window > 0 ? position - tile.window + 1 : 0;
  return {std::clamp<std::int64_t>(first - begin, 0, count),
          std::clamp<std::int64_t>(position + 1 - begin, 0, count)};
}

// All keys that a tile's queries see, or those of the chunks that it is for.
HWY_INLINE Seen keys_of(const AttendTile& tile) {
  const std::int64_t first =
      tile.window > 0 ? std::max<std::int64_t>(0, tile.first_position - tile.window + 1) : 0;
  const std::int64_t end = tile.first_position + tile.rows;
  if (tile.parts == nullptr) return {first, end};
  return {std::max(first, tile.first_chunk * kKeyChunk),
          std::min(end, (tile.first_chunk + tile.num_chunks) * kKeyChunk)};
}

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
// Highway's functions make whole numbers of their input on the way, which has no meaning for NaN
// where no instruction gives it one. What becomes of the lane is in its poison.
HWY_INLINE Vec exp_of(Vec x) {
  return hn::Exp(Floats(), hn::IfThenElseZero(hn::Eq(x, x), x));
}
HWY_INLINE Vec tanh_of(Vec x) {
  const auto is_number = hn::Eq(x, x);
  return hn::IfThenElse(is_number, hn::Tanh(Floats(), hn::IfThenElseZero(is_number, x)), x);
}
#else
#if HWY_TARGET == HWY_AVX3
// For what is not above zero, within 0.85 units of the last place, and NaN: half of the operations
// of Highway's. 1 + r + r² · p(r) on ±ln 2 / 2, p fitted to the least error.
HWY_INLINE Vec exp_of(Vec x) {
  const auto all = [](float value) HWY_ATTR { return _mm512_set1_ps(value); };
  const __m512 bounded = _mm512_max_ps(all(-110.0F), x.raw);  // NaN stays
  const __m512 n =
      _mm512_roundscale_ps(_mm512_mul_ps(bounded, all(1.44269502F)), _MM_FROUND_TO_NEAREST_INT);
  __m512 r = _mm512_fnmadd_ps(n, all(0.693359375F), bounded);
  r = _mm512_fnmadd_ps(n, all(-2.12194442e-4F), r);
  __m512 p = _mm512_fmadd_ps(all(1.39262504e-3F), r, all(8.36323295e-3F));
  p = _mm512_fmadd_ps(p, r, all(4.16665524e-2F));
  p = _mm512_fmadd_ps(p, r, all(1.66665763e-1F));
  p = _mm512_fmadd_ps(p, r, all(0.5F));
  p = _mm512_fmadd_ps(p, r, all(1.0F));
  p = _mm512_fmadd_ps(p, r, all(1.0F));
  Vec result;
  result.raw = _mm512_scalef_ps(p, n);
  return result;
}
#else
HWY_INLINE Vec exp_of(Vec x) {
  return hn::Exp(Floats(), x);
}
#endif
HWY_INLINE Vec tanh_of(Vec x) {
  return hn::Tanh(Floats(), x);
}
#endif

// Not Highway's Iota: gcc 12 at -O3 miscompiles what it is inlined into (softcaps came out wrong).
HWY_ALIGN constexpr float kLaneNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// What a query has of a chunk of keys.
struct Part {
  float largest;  // score
  float total;    // of exponentials
  const float* sums;
};

// kLanes values `stride` apart: each half is added to the other.
HWY_INLINE float add_up(const float* values, std::int64_t stride) {
  float lanes[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] = values[i * stride];
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Parts in memory: largest, total, and the sums in a line of their own.
HWY_INLINE void keep_part(const Part& part, std::int64_t dim, float* out) {
  out[0] = part.largest;
  out[1] = part.total;
  std::copy_n(part.sums, dim, out + kPartHead);
}

// Joins what a query has of the next chunk to what it has of those before.
HWY_INLINE void join_part(const Part& part, std::int64_t dim, float* so_far) {
  const Vec lowest = hn::Set(Floats(), -std::numeric_limits<float>::infinity());
  const Vec before = hn::Set(Floats(), so_far[0]);
  const Vec here = hn::Set(Floats(), part.largest);
  const Vec now = hn::Max(before, here);
  const Vec base = hn::IfThenElse(hn::Eq(now, lowest), hn::Zero(Floats()), now);
  const Vec shrink_before = exp_of(hn::Sub(before, base));
  const Vec shrink_here = exp_of(hn::Sub(here, base));
  const auto join = [&](Vec a, Vec b)
                        HWY_ATTR { return hn::MulAdd(a, shrink_before, hn::Mul(b, shrink_here)); };
  so_far[0] = hn::GetLane(now);
  so_far[1] = hn::GetLane(join(hn::Set(Floats(), so_far[1]), hn::Set(Floats(), part.total)));
  float* sums = so_far + kPartHead;
  std::int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes)
    hn::StoreU(join(load(sums + d), load(part.sums + d)), Floats(), sums + d);
  for (; d < dim; ++d)
    sums[d] = hn::GetLane(join(hn::Set(Floats(), sums[d]), hn::Set(Floats(), part.sums[d])));
}

HWY_INLINE void tell_part(const float* part, std::int64_t dim, float* out) {
  const float share = 1.0F / part[1];
  for (std::int64_t d = 0; d < dim; ++d) out[d] = part[kPartHead + d] * share;
}

// For checkpoints: scores as they are before they become exponentials. Those of one query stand
// `key_stride` apart.
HWY_INLINE void tell_scores(const AttendTile& tile, const float* scores, std::int64_t query_stride,
                            std::int64_t key_stride, std::int64_t begin, std::int64_t count) {
  for (std::int64_t query = 0; query < tile.rows * tile.heads; ++query) {
    const Seen seen = seen_by(tile, query, begin, count);
    float* out = tile.scores + query / tile.heads * tile.scores_row_stride +
                 query % tile.heads * tile.scores_head_stride + begin;
    for (std::int64_t i = seen.from; i < seen.to; ++i) {
      const float score = scores[query * query_stride + i * key_stride];
      out[i] = tile.softcap > 0 ? tile.softcap * std::tanh(score / tile.softcap) : score;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
