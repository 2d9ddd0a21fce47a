// Attention of one query head over paged keys and values. Included once per instruction set.
#include "compute/cpu/dot_inl.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/rows_inl.h"

#if defined(LLORCH_COMPUTE_CPU_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_ATTENTION_INL_H
#undef LLORCH_COMPUTE_CPU_ATTENTION_INL_H
#else
#define LLORCH_COMPUTE_CPU_ATTENTION_INL_H
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

// Values in one T of a cache.
template <class T>
constexpr std::int64_t kValues = 1;
template <>
constexpr std::int64_t kValues<QuantBlock> = 32;

// Calls visit(vectors, index, count) for each run of keys that lie side by side, i.e. within one
// block: `vectors` points at the first one's, `index` counts from head.first.
template <class T, class F>
HWY_INLINE void each_run(const AttendHead& head, const void* cache, std::int64_t block_stride,
                         const F& visit) {
  for (std::int64_t key = head.first; key <= head.last;) {
    const std::int64_t block = key / head.block_tokens;
    const std::int64_t offset = key % head.block_tokens;
    const std::int64_t count = HWY_MIN(head.block_tokens - offset, head.last + 1 - key);
    const std::int64_t values =
        head.table[block] * block_stride + head.head_offset + offset * head.head_dim;
    visit(static_cast<const T*>(cache) + values / kValues<T>, key - head.first, count);
    key += count;
  }
}

template <class T>
HWY_INLINE void score_keys(const AttendHead& head) {
  each_run<T>(head, head.keys, head.key_block_stride,
              [&](const T* keys, std::int64_t index, std::int64_t count) HWY_ATTR {
                std::int64_t i = 0;
                for (; i + 4 <= count; i += 4) {
                  dot_tile<1, 4>(head.q, 0, keys + i * head.head_dim, head.head_dim, head.head_dim,
                                 head.scratch + index + i);
                }
                for (; i < count; ++i) {
                  dot_tile<1, 1>(head.q, 0, keys + i * head.head_dim, head.head_dim, head.head_dim,
                                 head.scratch + index + i);
                }
              });
}

// out[i .. i + Vectors * kLanes) = Σ weight · value, keys in order.
template <int Vectors, class T>
HWY_INLINE void sum_values(const AttendHead& head, std::int64_t i) {
  Vec sums[std::size_t{Vectors}];
  for (int v = 0; v < Vectors; ++v) sums[v] = hn::Zero(Floats());
  each_run<T>(head, head.values, head.value_block_stride,
              [&](const T* values, std::int64_t index, std::int64_t count) HWY_ATTR {
                for (std::int64_t t = 0; t < count; ++t) {
                  const Vec weight = hn::Set(Floats(), head.scratch[index + t]);
                  const T* value = values + t * head.head_dim + i;
                  for (int v = 0; v < Vectors; ++v) {
                    sums[v] = hn::MulAdd(weight, load(value + v * kLanes), sums[v]);
                  }
                }
              });
  for (int v = 0; v < Vectors; ++v) hn::StoreU(sums[v], Floats(), head.out + i + v * kLanes);
}

template <class T>
HWY_INLINE void weigh_values(const AttendHead& head) {
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= head.head_dim; i += 4 * kLanes) sum_values<4, T>(head, i);
  for (; i + kLanes <= head.head_dim; i += kLanes) sum_values<1, T>(head, i);
  for (; i < head.head_dim; ++i) {
    float sum = 0;
    each_run<T>(head, head.values, head.value_block_stride,
                [&](const T* values, std::int64_t index, std::int64_t count) HWY_ATTR {
                  for (std::int64_t t = 0; t < count; ++t) {
                    sum += head.scratch[index + t] * to_float(values[t * head.head_dim + i]);
                  }
                });
    head.out[i] = sum;
  }
}

HWY_INLINE Vec load_quants(const std::int8_t* quants) {
  const hn::Rebind<std::int8_t, Floats> bytes;
  const hn::RebindToSigned<Floats> ints;
  return hn::ConvertTo(Floats(), hn::PromoteTo(ints, hn::LoadU(bytes, quants)));
}

// The whole numbers of a block are summed before its scale comes in.
template <>
HWY_INLINE void score_keys<QuantBlock>(const AttendHead& head) {
  const std::int64_t blocks = head.head_dim / kValues<QuantBlock>;
  each_run<QuantBlock>(
      head, head.keys, head.key_block_stride,
      [&](const QuantBlock* keys, std::int64_t index, std::int64_t count) HWY_ATTR {
        for (std::int64_t t = 0; t < count; ++t, keys += blocks) {
          Vec total = hn::Zero(Floats());
          for (std::int64_t b = 0; b < blocks; ++b) {
            const float* q = head.q + b * kValues<QuantBlock>;
            Vec sum = hn::Zero(Floats());
            for (std::int64_t i = 0; i < kValues<QuantBlock>; i += kLanes)
              sum = hn::MulAdd(load(q + i), load_quants(keys[b].quants + i), sum);
            const Vec scale = hn::Set(Floats(), tensor::half_to_float(keys[b].scale));
            total = hn::MulAdd(sum, scale, total);
          }
          head.scratch[index + t] = reduce_sum(total);
        }
      });
}

template <>
HWY_INLINE void weigh_values<QuantBlock>(const AttendHead& head) {
  constexpr std::int64_t kVectors = kValues<QuantBlock> / kLanes;
  const std::int64_t blocks = head.head_dim / kValues<QuantBlock>;
  for (std::int64_t b = 0; b < blocks; ++b) {
    Vec sums[std::size_t{kVectors}];
    for (std::int64_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(Floats());
    each_run<QuantBlock>(
        head, head.values, head.value_block_stride,
        [&](const QuantBlock* values, std::int64_t index, std::int64_t count) HWY_ATTR {
          for (std::int64_t t = 0; t < count; ++t) {
            const QuantBlock& block = values[t * blocks + b];
            const Vec weight =
                hn::Set(Floats(), head.scratch[index + t] * tensor::half_to_float(block.scale));
            for (std::int64_t v = 0; v < kVectors; ++v)
              sums[v] = hn::MulAdd(weight, load_quants(block.quants + v * kLanes), sums[v]);
          }
        });
    float* out = head.out + b * kValues<QuantBlock>;
    for (std::int64_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], Floats(), out + v * kLanes);
  }
}

HWY_INLINE void finish_scores(const AttendHead& head, std::int64_t count) {
  const Vec scale = hn::Set(Floats(), head.scale);
  map_row(head.scratch, count, head.scratch, [scale](Vec v) HWY_ATTR { return hn::Mul(v, scale); });
  if (head.softcap > 0) softcap(head.scratch, count, head.softcap, head.scratch);
}

template <class T>
HWY_INLINE void attend_typed(const AttendHead& head) {
  const std::int64_t count = head.last - head.first + 1;
  score_keys<T>(head);
  finish_scores(head, count);
  if (head.scores != nullptr) {
    std::memcpy(head.scores, head.scratch, static_cast<std::size_t>(count) * sizeof(float));
  }
  softmax(head.scratch, count, head.scratch);
  weigh_values<T>(head);
}

HWY_MAYBE_UNUSED static void attend(const AttendHead& head) {
  if (head.cache_dtype == tensor::DType::F16) return attend_typed<Half>(head);
  if (head.cache_dtype == tensor::DType::Q8_0) return attend_typed<QuantBlock>(head);
  attend_typed<float>(head);
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
