// Attention of one row with up to eight query heads to a key head. Keys are turned around in
// registers once for all heads, so that lanes are keys while scores are summed and become
// exponentials; values are added up as they come from the cache. Every sum has the order that it
// has where lanes are queries (attention.cc), so a row gets the same bits alone and in a prompt.
// Included once per instruction set.
#include <limits>

#include "compute/cpu/attention_keys_inl.h"

#if defined(LLORCH_COMPUTE_CPU_ATTENTION_TURNED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_ATTENTION_TURNED_INL_H
#undef LLORCH_COMPUTE_CPU_ATTENTION_TURNED_INL_H
#else
#define LLORCH_COMPUTE_CPU_ATTENTION_TURNED_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

// Elsewhere there are too few lanes for it to pay.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2

constexpr std::int64_t kTurnedHeads = 8;

// The three parts of a tile are functions of their own, or their sums would not get the registers.

// Where a thread works.
struct TurnedRoom {
  float* queries;  // (head_dim, kTurnedHeads), scaled
  float* weights;  // (heads, kKeyTile): scores, then exponentials
  float* sums;     // (heads, head_dim): weighted values
};

// Values at .. at + kLanes of a cached vector.
HWY_INLINE Vec load_values(const float* vector, std::int64_t at) {
  return load(vector + at);
}
HWY_INLINE Vec load_values(const Half* vector, std::int64_t at) {
  return load(vector + at);
}
HWY_INLINE Vec load_values(const QuantBlock* vector, std::int64_t at) {
  const QuantBlock& block = vector[at / 32];
  const hn::Rebind<std::int8_t, Floats> bytes;
  const hn::Rebind<std::uint16_t, Floats> words;
  const hn::Rebind<hwy::float16_t, Floats> halves;
  const hn::RebindToSigned<Floats> ints;
  const Vec scale = hn::PromoteTo(Floats(), hn::BitCast(halves, hn::Set(words, block.scale)));
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

// Scores of kLanes keys: sums over 32 values of a head, then those together.
template <int Heads, class T>
HWY_NOINLINE void score_turned(const T* const* keys, const float* queries, std::int64_t head_dim,
                               float* out) {
  constexpr std::int64_t kStretch = 32;
  for (std::int64_t begin = 0; begin < head_dim; begin += kStretch) {
    const std::int64_t end = HWY_MIN(begin + kStretch, head_dim);
    Vec sums[std::size_t{Heads}];
    for (int h = 0; h < Heads; ++h) sums[h] = hn::Zero(Floats());
    for (std::int64_t d = begin; d < end; d += kLanes) {
      Vec values[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i) values[i] = load_values(keys[i], d);
      turn(values);
      const float* q = queries + d * kTurnedHeads;
      for (std::int64_t i = 0; i < kLanes; ++i, q += kTurnedHeads) {
        for (int h = 0; h < Heads; ++h)
          sums[h] = hn::MulAdd(values[i], hn::Set(Floats(), q[h]), sums[h]);
      }
    }
    for (int h = 0; h < Heads; ++h) {
      float* place = out + h * kKeyTile;
      hn::StoreU(begin == 0 ? sums[h] : hn::Add(load(place), sums[h]), Floats(), place);
    }
  }
}

// What the heads have seen so far.
template <int Heads>
struct TurnedSeen {
  float largest[std::size_t{Heads}];
  float total[std::size_t{Heads}];
  float shrink[std::size_t{Heads}];  // by what this tile's maximum makes the sums smaller
};

// Scores of the tile's keys that are seen to exponentials; the others, up to whole vectors, become
// nothing.
template <int Heads>
HWY_NOINLINE void weigh_turned(float softcap, Seen keys, float* weights, TurnedSeen<Heads>& seen) {
  const auto [from, to] = keys;
  const Vec lowest = hn::Set(Floats(), -std::numeric_limits<float>::infinity());
  const Vec zero = hn::Zero(Floats());
  const Vec cap = hn::Set(Floats(), softcap);
  const Vec lanes = load(kLaneNumbers);
  const Vec first = hn::Set(Floats(), static_cast<float>(from));
  const Vec last = hn::Set(Floats(), static_cast<float>(to));
  const std::int64_t begin = from / kLanes * kLanes;
  float poison[std::size_t{Heads}];  // NaN where a score is not finite
  for (int h = 0; h < Heads; ++h) {
    float* scores = weights + h * kKeyTile;
    Vec most = lowest;
    Vec odd = zero;
    for (std::int64_t i = begin; i < to; i += kLanes) {
      Vec s = load(scores + i);
      if (softcap > 0) s = hn::Mul(cap, tanh_of(hn::Div(s, cap)));
      const Vec index = hn::Add(lanes, hn::Set(Floats(), static_cast<float>(i)));
      const auto sees = hn::And(hn::Ge(index, first), hn::Lt(index, last));
      odd = hn::MulAdd(hn::IfThenElseZero(sees, s), zero, odd);
      s = hn::IfThenElse(sees, s, lowest);
      hn::StoreU(s, Floats(), scores + i);
      most = hn::Max(most, s);
    }
    const float before = seen.largest[h];
    const float now = HWY_MAX(before, reduce_max(most));
    const Vec base = hn::Set(Floats(), now);
    for (std::int64_t i = begin; i < to; i += kLanes)
      hn::StoreU(exp_of(hn::Sub(load(scores + i), base)), Floats(), scores + i);
    seen.largest[h] = now;
    seen.shrink[h] = hn::GetLane(exp_of(hn::Sub(hn::Set(Floats(), before), base)));
    poison[h] = reduce_sum(odd);
  }
  // Key by key, all heads side by side: each sum waits for itself alone.
  float sums[std::size_t{Heads}] = {};
  for (std::int64_t i = from; i < to; ++i) {
    for (int h = 0; h < Heads; ++h) sums[h] += weights[h * kKeyTile + i];
  }
  for (int h = 0; h < Heads; ++h) {
    seen.total[h] =
        hn::GetLane(hn::MulAdd(hn::Set(Floats(), seen.total[h]), hn::Set(Floats(), seen.shrink[h]),
                               hn::Set(Floats(), sums[h] + poison[h])));
  }
}

// sums[head][at …] += weight · value for the tile's keys that are seen, in their order.
template <int Heads, int Vectors, class T>
HWY_NOINLINE void value_turned(const T* const* values, std::int64_t head_dim, Seen keys,
                               const TurnedRoom& room, std::int64_t at, const float* shrink) {
  const float* weights = room.weights;
  float* sums = room.sums;
  Vec parts[std::size_t{Heads}][std::size_t{Vectors}];
  for (int h = 0; h < Heads; ++h) {
    const Vec smaller = hn::Set(Floats(), shrink[h]);
    for (int v = 0; v < Vectors; ++v)
      parts[h][v] = hn::Mul(load(sums + h * head_dim + at + v * kLanes), smaller);
  }
  for (std::int64_t key = keys.from; key < keys.to; ++key) {
    Vec value[std::size_t{Vectors}];
    for (int v = 0; v < Vectors; ++v) value[v] = load_values(values[key], at + v * kLanes);
    for (int h = 0; h < Heads; ++h) {
      const Vec weight = hn::Set(Floats(), weights[h * kKeyTile + key]);
      for (int v = 0; v < Vectors; ++v) parts[h][v] = hn::MulAdd(weight, value[v], parts[h][v]);
    }
  }
  for (int h = 0; h < Heads; ++h) {
    for (int v = 0; v < Vectors; ++v)
      hn::StoreU(parts[h][v], Floats(), sums + h * head_dim + at + v * kLanes);
  }
}

// Where keys or values of the tile at `begin` lie that are seen, for whole vectors of them: those
// beyond are given the place of a neighbour, so that there is something to load.
template <class T>
HWY_INLINE void find_vectors(const AttendTile& tile, const void* cache, std::int64_t block_stride,
                             std::int64_t begin, Seen seen, const T** places) {
  const auto [from, to] = seen;
  constexpr std::int64_t kValues = sizeof(T) == sizeof(QuantBlock) ? 32 : 1;
  each_run<T>(tile, cache, block_stride, begin, from, to,
              [&](const T* vectors, std::int64_t index, std::int64_t count) HWY_ATTR {
                for (std::int64_t i = 0; i < count; ++i)
                  places[index + i] = vectors + i * tile.head_dim / kValues;
              });
  for (std::int64_t i = from / kLanes * kLanes; i < from; ++i) places[i] = places[from];
  for (std::int64_t i = to; i % kLanes != 0; ++i) places[i] = places[to - 1];
}

// Heads that there are not are attended with queries of nothing, and nobody looks at them.
template <int Heads, class T>
HWY_NOINLINE void attend_turned(const AttendTile& tile) {
  const std::int64_t dim = tile.head_dim;
  TurnedRoom room;
  room.queries = tile.scratch;
  room.weights = room.queries + dim * kTurnedHeads;
  room.sums = room.weights + Heads * kKeyTile;
  TurnedSeen<Heads> seen;
  for (int h = 0; h < Heads; ++h) {
    const bool is_there = h < tile.heads;
    for (std::int64_t d = 0; d < dim; ++d)
      room.queries[d * kTurnedHeads + h] = is_there ? tile.q[h * dim + d] * tile.scale : 0.0F;
    seen.largest[h] = -std::numeric_limits<float>::infinity();
    seen.total[h] = 0;
  }
  std::fill_n(room.sums, Heads * dim, 0.0F);
  const T* keys[kKeyTile];
  const T* values[kKeyTile];
  const std::int64_t first =
      tile.window > 0 ? std::max<std::int64_t>(0, tile.first_position - tile.window + 1) : 0;
  const std::int64_t end = tile.first_position + 1;
  for (std::int64_t begin = first / kKeyTile * kKeyTile; begin < end; begin += kKeyTile) {
    const std::int64_t from = std::max<std::int64_t>(first - begin, 0);
    const std::int64_t to = std::min(kKeyTile, end - begin);
    const std::int64_t next = begin + kKeyTile;
    find_vectors<T>(tile, tile.keys, tile.key_block_stride, begin, {from, to}, keys);
    find_vectors<T>(tile, tile.values, tile.value_block_stride, begin, {from, to}, values);
    for (std::int64_t i = from / kLanes * kLanes; i < to; i += kLanes) {
      ask_ahead<T>(tile, tile.values, tile.value_block_stride, begin, std::max(i, from),
                   std::min(i + kLanes, to));
      score_turned<Heads>(keys + i, room.queries, dim, room.weights + i);
    }
    if (tile.scores != nullptr) tell_scores(tile, room.weights, kKeyTile, 1, begin, to);
    weigh_turned<Heads>(tile.softcap, {from, to}, room.weights, seen);
    std::int64_t at = 0;
    constexpr int kVectors = HWY_TARGET == HWY_AVX3 ? 2 : 1;
    const std::int64_t parts = dim / (kVectors * kLanes);
    for (; at + kVectors * kLanes <= dim; at += kVectors * kLanes) {
      const std::int64_t part = at / (kVectors * kLanes);
      const auto share = [&](std::int64_t index) {
        return std::min(kKeyTile * index / parts, std::max<std::int64_t>(end - next, 0));
      };
      ask_ahead<T>(tile, tile.keys, tile.key_block_stride, next, share(part), share(part + 1));
      value_turned<Heads, kVectors>(values, dim, {from, to}, room, at, seen.shrink);
    }
    for (; at < dim; at += kLanes)
      value_turned<Heads, 1>(values, dim, {from, to}, room, at, seen.shrink);
  }
  for (std::int64_t h = 0; h < tile.heads; ++h) {
    const float share = 1.0F / seen.total[h];
    for (std::int64_t d = 0; d < dim; ++d) tile.out[h * dim + d] = room.sums[h * dim + d] * share;
  }
}

#endif

// Whether it is a tile for that; then it was attended.
template <class T>
HWY_INLINE bool attend_turned(const AttendTile& tile) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if (tile.sums_in_lanes || tile.rows != 1 || tile.head_dim % kLanes != 0) return false;
  if (tile.heads <= 4) {
    attend_turned<4, T>(tile);
  } else if (tile.heads <= 7) {
    attend_turned<7, T>(tile);
  } else if (tile.heads == 8) {
    attend_turned<8, T>(tile);
  } else {
    return false;
  }
  return true;
#else
  static_cast<void>(tile);
  return false;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
