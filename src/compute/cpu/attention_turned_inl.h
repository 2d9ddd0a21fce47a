// Attention of one row, for key heads that up to eight query heads share each. Keys are turned
// around in registers once for all heads of a group, so that lanes are keys while scores are summed
// and become exponentials; values are added up as they come from the cache. Every sum has the order
// that it has where lanes are queries (attention.cc), so a row gets the same bits alone and in a
// prompt.
//
// The cache is walked as it lies: sixteen tokens of one key head, then of the next, and what comes
// eight KiB later is asked for meanwhile. Included once per instruction set.
#include <limits>

#include "compute/cpu/attention_keys_inl.h"
#include "compute/cpu/turned_keys_inl.h"

#if defined(LLORCH_COMPUTE_CPU_ATTENTION_TURNED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_ATTENTION_TURNED_INL_H
#undef LLORCH_COMPUTE_CPU_ATTENTION_TURNED_INL_H
#else
#define LLORCH_COMPUTE_CPU_ATTENTION_TURNED_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR  // there is nothing to turn

constexpr std::int64_t kGroupKeys = 16;  // of one key head, before those of the next
constexpr std::int64_t kAheadBytes = 8192;

// The three parts of a tile are functions of their own, or their sums would not get the registers.

// Where a thread works. Heads are those of all key heads, one after the other.
struct TurnedRoom {
  float* queries;  // (key heads, head_dim, Heads), scaled
  float* weights;  // (heads, kKeyTile): scores, then exponentials
  float* sums;     // (heads, head_dim): weighted values of this chunk
  float* totals;   // (heads, kLanes): exponentials of this chunk
  float* largest;  // (heads): score of this chunk
  float* base;     // (heads): with this tile's
  float* shrink;   // (heads): by what that makes the sums smaller
  float* joined;   // (heads, part_floats): chunks before
};

// What a walk comes to later: places of keys or values, and how far from there.
template <class T>
struct Ahead {
  const T* const* places;
  std::int64_t offset;

  // Values d .. d + 32 of `count` of them. Inlined by force: to gcc a function that does nothing
  // else does nothing, and its calls are left out.
  HWY_INLINE void ask(std::int64_t d, std::int64_t count) const {
    constexpr std::int64_t kBytes =
        std::is_same_v<T, QuantBlock> ? sizeof(QuantBlock) : 32 * sizeof(T);
    for (std::int64_t i = 0; i < count; ++i) {
      const char* place = reinterpret_cast<const char*>(places[i] + offset) + d / 32 * kBytes;
      for (std::int64_t line = 0; line < kBytes; line += 64) __builtin_prefetch(place + line);
    }
  }
};

// Scores of kLanes keys: sums over 32 values of a head, then those together.
template <int Heads, class T>
HWY_NOINLINE void score_turned(const T* const* keys, std::int64_t offset, const float* queries,
                               std::int64_t head_dim, const Ahead<T>& ahead, float* out) {
  constexpr std::int64_t kStretch = 32;
  for (std::int64_t begin = 0; begin < head_dim; begin += kStretch) {
    const std::int64_t end = HWY_MIN(begin + kStretch, head_dim);
    ahead.ask(begin, kLanes);
    Vec sums[std::size_t{Heads}];
    for (int h = 0; h < Heads; ++h) sums[h] = hn::Zero(Floats());
    multiply_keys<Heads>(keys, offset, begin, end, queries, sums);
#pragma GCC unroll 8
    for (int h = 0; h < Heads; ++h) {
      float* place = out + h * kKeyTile;
      hn::StoreU(begin == 0 ? sums[h] : hn::Add(load(place), sums[h]), Floats(), place);
    }
  }
}

// Scores of the tile's keys that are seen to exponentials; the others, up to whole vectors, become
// nothing.
template <bool everything>
HWY_NOINLINE void weigh_turned(float softcap, Seen keys, std::int64_t heads, std::int64_t head_dim,
                               const TurnedRoom& room) {
  const auto [from, to] = keys;
  const Vec lowest = hn::Set(Floats(), -std::numeric_limits<float>::infinity());
  const Vec zero = hn::Zero(Floats());
  const Vec cap = hn::Set(Floats(), softcap);
  const Vec lanes = load(kLaneNumbers);
  const Vec first = hn::Set(Floats(), static_cast<float>(from));
  const Vec last = hn::Set(Floats(), static_cast<float>(to));
  const std::int64_t begin = everything ? 0 : from / kLanes * kLanes;
  const std::int64_t end = everything ? kKeyTile : to;
  const auto sees = [&](std::int64_t i) HWY_ATTR {
    const Vec index = hn::Add(lanes, hn::Set(Floats(), static_cast<float>(i)));
    return hn::And(hn::Ge(index, first), hn::Lt(index, last));
  };
  for (std::int64_t h = 0; h < heads; ++h) {
    float* scores = room.weights + h * kKeyTile;
    Vec most = lowest;
    for (std::int64_t i = begin; i < end; i += kLanes) {
      Vec s = load(scores + i);
      if (softcap > 0) {
        s = hn::Mul(cap, tanh_of(hn::Div(s, cap)));
        hn::StoreU(s, Floats(), scores + i);
      }
      most = hn::Max(most, everything ? s : hn::IfThenElse(sees(i), s, lowest));
    }
    room.base[h] = HWY_MAX(room.largest[h], reduce_max(most));
  }
  for (std::int64_t h = 0; h < heads; h += kLanes) {
    const Vec now = load(room.base + h);
    const Vec base = hn::IfThenElse(hn::Eq(now, lowest), zero, now);
    hn::StoreU(exp_of(hn::Sub(load(room.largest + h), base)), Floats(), room.shrink + h);
    hn::StoreU(now, Floats(), room.largest + h);
    hn::StoreU(base, Floats(), room.base + h);
  }
  for (std::int64_t h = 0; h < heads; ++h) {
    float* scores = room.weights + h * kKeyTile;
    const Vec base = hn::Set(Floats(), room.base[h]);
    Vec sum = zero;
    Vec poison = zero;  // NaN where a score is not finite: exponentials and maxima may lose that
    for (std::int64_t i = begin; i < end; i += kLanes) {
      Vec s = load(scores + i);
      if constexpr (everything) {
        poison = hn::MulAdd(s, zero, poison);
      } else {
        poison = hn::MulAdd(hn::IfThenElseZero(sees(i), s), zero, poison);
        s = hn::IfThenElse(sees(i), s, lowest);
      }
      const Vec weight = exp_of(hn::Sub(s, base));
      hn::StoreU(weight, Floats(), scores + i);
      sum = hn::Add(sum, weight);
    }
    const Vec shrink = hn::Set(Floats(), room.shrink[h]);
    float* totals = room.totals + h * kLanes;
    hn::StoreU(hn::MulAdd(load(totals), shrink, hn::Add(sum, poison)), Floats(), totals);
    if (room.shrink[h] == 1.0F) continue;
    float* sums = room.sums + h * head_dim;
    for (std::int64_t d = 0; d < head_dim; d += kLanes)
      hn::StoreU(hn::Mul(load(sums + d), shrink), Floats(), sums + d);
  }
}

// sums[head][at …] += weight · value for keys from..to of a group, in their order.
template <int Heads, int Vectors, class T>
HWY_NOINLINE void value_turned(const T* const* values, std::int64_t offset, std::int64_t at,
                               Seen keys, const Ahead<T>& ahead, const float* weights,
                               std::int64_t head_dim, float* sums) {
  Vec parts[std::size_t{Heads}][std::size_t{Vectors}];
#pragma GCC unroll 8
  for (int h = 0; h < Heads; ++h) {
    for (int v = 0; v < Vectors; ++v) parts[h][v] = load(sums + h * head_dim + at + v * kLanes);
  }
  for (std::int64_t d = at; d < at + Vectors * kLanes; d += 32) {
    if (d % 32 == 0) ahead.ask(d, kGroupKeys);
  }
  for (std::int64_t key = keys.from; key < keys.to; ++key) {
    Vec value[std::size_t{Vectors}];
    for (int v = 0; v < Vectors; ++v) value[v] = load_values(values[key] + offset, at + v * kLanes);
#pragma GCC unroll 8
    for (int h = 0; h < Heads; ++h) {
      const Vec weight = hn::Set(Floats(), weights[h * kKeyTile + key]);
      for (int v = 0; v < Vectors; ++v) parts[h][v] = hn::MulAdd(weight, value[v], parts[h][v]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < Heads; ++h) {
    for (int v = 0; v < Vectors; ++v)
      hn::StoreU(parts[h][v], Floats(), sums + h * head_dim + at + v * kLanes);
  }
}

// Where keys or values of the tile at `begin` lie; those that are not seen are given the place of
// one that is, so that there is something to load.
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
  for (std::int64_t i = 0; i < from; ++i) places[i] = places[from];
  for (std::int64_t i = to; i < kKeyTile; ++i) places[i] = places[to - 1];
}

// One row with `Heads` query heads to a key head, or fewer: those that there are not have queries
// of nothing, and nobody looks at them.
template <int Heads, class T>
class TurnedRow {
 public:
  HWY_INLINE explicit TurnedRow(const AttendTile& tile)
      : tile_(tile),
        dim_(tile.head_dim),
        heads_(tile.kv_heads * Heads),
        head_stride_(tile.block_tokens * dim_ / kValues),
        range_(keys_of(tile)) {
    constexpr std::int64_t kGroups = kKeyTile / kGroupKeys;
    const std::int64_t group_bytes = kGroupKeys * dim_ / kValues * std::int64_t{sizeof(T)};
    ahead_ = std::clamp<std::int64_t>(kAheadBytes / group_bytes, 1, kGroups * tile.kv_heads);
    float* at = tile.scratch;
    const auto take = [&](std::int64_t floats) {
      float* place = at;
      at += floats;
      return place;
    };
    room_.queries = take(heads_ * dim_);
    room_.weights = take(heads_ * kKeyTile);
    room_.sums = take(heads_ * dim_);
    room_.totals = take(heads_ * kLanes);
    room_.largest = take(whole_vectors(heads_));
    room_.base = take(whole_vectors(heads_));
    room_.shrink = take(whole_vectors(heads_));
    room_.joined = take(heads_ * part_floats(dim_));
    for (std::int64_t head = 0; head < heads_; ++head) {
      const std::int64_t h = head % Heads;
      const float* q = tile.q + (head / Heads * tile.heads + h) * dim_;
      float* out = room_.queries + head / Heads * dim_ * Heads + h;
      for (std::int64_t d = 0; d < dim_; ++d)
        out[d * Heads] = h < tile.heads ? q[d] * tile.scale : 0.0F;
    }
  }

  HWY_INLINE void attend() {
    const T* places[3][kKeyTile];
    const T** keys = places[0];
    const T** next = places[1];
    const T** values = places[2];
    const std::int64_t first = range_.from / kKeyTile * kKeyTile;
    find(tile_.keys, tile_.key_block_stride, first, keys);
    for (std::int64_t chunk = first / kKeyChunk; chunk * kKeyChunk < range_.to; ++chunk) {
      const std::int64_t end = std::min((chunk + 1) * kKeyChunk, range_.to);
      begin_chunk();
      for (std::int64_t begin = std::max(chunk * kKeyChunk, first); begin < end;
           begin += kKeyTile) {
        find(tile_.values, tile_.value_block_stride, begin, values);
        const std::int64_t after = begin + kKeyTile < range_.to ? begin + kKeyTile : begin;
        find(tile_.keys, tile_.key_block_stride, after, next);
        attend_tile(begin, keys, values, next);
        std::swap(keys, next);
      }
      end_chunk(chunk);
    }
    if (tile_.parts != nullptr) return;
    for (std::int64_t head = 0; head < tile_.kv_heads * tile_.heads; ++head)
      tell_part(room_.joined + place_of(head) * part_floats(dim_), dim_, tile_.out + head * dim_);
  }

 private:
  static constexpr std::int64_t kValues = sizeof(T) == sizeof(QuantBlock) ? 32 : 1;

  // Of a head of the row, among those that are padded.
  HWY_INLINE std::int64_t place_of(std::int64_t head) const {
    return head / tile_.heads * Heads + head % tile_.heads;
  }
  HWY_INLINE Seen seen_at(std::int64_t begin) const {
    return {std::max<std::int64_t>(range_.from - begin, 0), std::min(kKeyTile, range_.to - begin)};
  }
  HWY_INLINE void find(const void* cache, std::int64_t block_stride, std::int64_t begin,
                       const T** places) const {
    find_vectors<T>(tile_, cache, block_stride, begin, seen_at(begin), places);
  }

  // Calls visit(first key, key head, what to ask for) for the groups of a tile, in the order in
  // which they lie; those of `next` follow them.
  template <class F>
  HWY_INLINE void walk(Seen seen, const T* const* here, const T* const* next,
                       const F& visit) const {
    constexpr std::int64_t kLast = kKeyTile / kGroupKeys - 1;
    const std::int64_t begin = seen.from / kGroupKeys;
    const std::int64_t end = (seen.to + kGroupKeys - 1) / kGroupKeys;
    std::int64_t asked = begin + ahead_ / tile_.kv_heads;
    std::int64_t asked_head = ahead_ % tile_.kv_heads;
    for (std::int64_t group = begin; group < end; ++group) {
      for (std::int64_t head = 0; head < tile_.kv_heads; ++head) {
        const T* const* places = asked < end ? here + asked * kGroupKeys
                                             : next + std::min(asked - end, kLast) * kGroupKeys;
        visit(group * kGroupKeys, head, Ahead<T>{places, asked_head * head_stride_});
        if (++asked_head < tile_.kv_heads) continue;
        asked_head = 0;
        ++asked;
      }
    }
  }

  HWY_INLINE void begin_chunk() {
    std::fill_n(room_.largest, heads_, -std::numeric_limits<float>::infinity());
    std::fill_n(room_.totals, heads_ * kLanes, 0.0F);
    std::fill_n(room_.sums, heads_ * dim_, 0.0F);
  }

  HWY_INLINE void attend_tile(std::int64_t begin, const T* const* keys, const T* const* values,
                              const T* const* next) {
    const Seen seen = seen_at(begin);
    walk(seen, keys, values,
         [&](std::int64_t key, std::int64_t head, const Ahead<T>& ahead) HWY_ATTR {
           for (std::int64_t i = key; i < key + kGroupKeys; i += kLanes) {
             score_turned<Heads, T>(keys + i, head * head_stride_,
                                    room_.queries + head * dim_ * Heads, dim_,
                                    {ahead.places + (i - key), ahead.offset},
                                    room_.weights + head * Heads * kKeyTile + i);
           }
         });
    if (tile_.scores != nullptr) tell_scores(tile_, room_.weights, kKeyTile, 1, begin, seen.to);
    if (seen.from == 0 && seen.to == kKeyTile) {
      weigh_turned<true>(tile_.softcap, seen, heads_, dim_, room_);
    } else {
      weigh_turned<false>(tile_.softcap, seen, heads_, dim_, room_);
    }
    walk(seen, values, next,
         [&](std::int64_t key, std::int64_t head, const Ahead<T>& ahead) HWY_ATTR {
           const Seen here = {std::max<std::int64_t>(seen.from - key, 0),
                              std::min(seen.to - key, kGroupKeys)};
           const float* weights = room_.weights + head * Heads * kKeyTile + key;
           float* sums = room_.sums + head * Heads * dim_;
           std::int64_t at = 0;
           for (; at + kVectors * kLanes <= dim_; at += kVectors * kLanes)
             value_turned<Heads, kVectors, T>(values + key, head * head_stride_, at, here, ahead,
                                              weights, dim_, sums);
           for (; at < dim_; at += kLanes)
             value_turned<Heads, 1, T>(values + key, head * head_stride_, at, here, ahead, weights,
                                       dim_, sums);
         });
  }

  HWY_INLINE void end_chunk(std::int64_t chunk) {
    const std::int64_t first = range_.from / kKeyChunk;
    for (std::int64_t head = 0; head < tile_.kv_heads * tile_.heads; ++head) {
      const std::int64_t place = place_of(head);
      const Part part = {room_.largest[place], add_up(room_.totals + place * kLanes, 1),
                         room_.sums + place * dim_};
      if (tile_.parts != nullptr) {
        keep_part(part, dim_,
                  tile_.parts + (chunk - first) * tile_.part_stride + head * part_floats(dim_));
      } else if (chunk == first) {
        keep_part(part, dim_, room_.joined + place * part_floats(dim_));
      } else {
        join_part(part, dim_, room_.joined + place * part_floats(dim_));
      }
    }
  }

  // Of values at once: as many sums as there are registers for.
  static constexpr int kVectors =
      HWY_TARGET == HWY_AVX3 ? (Heads <= 4 ? 4 : 2) : (Heads <= 4 ? 2 : 1);

  const AttendTile& tile_;
  const std::int64_t dim_;
  const std::int64_t heads_;  // of all key heads, padded
  const std::int64_t head_stride_;
  const Seen range_;        // of keys
  std::int64_t ahead_ = 0;  // groups
  TurnedRoom room_;
};

template <int Heads, class T>
HWY_NOINLINE void attend_row(const AttendTile& tile) {
  TurnedRow<Heads, T>(tile).attend();
}

#endif

// Whether it is a tile for that; then it was attended.
template <class T>
HWY_INLINE bool attend_turned(const AttendTile& tile) {
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(tile);
  return false;
#else
  if (tile.rows != 1 || tile.head_dim % kGroupKeys != 0) return false;
  const std::int64_t heads = tile.heads;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if (heads == 1) {
    attend_row<1, T>(tile);
  } else if (heads == 2) {
    attend_row<2, T>(tile);
  } else if (heads == 3) {
    attend_row<3, T>(tile);
  } else if (heads == 4) {
    attend_row<4, T>(tile);
  } else if (heads <= 7) {
    attend_row<7, T>(tile);
#else
  if (heads == 1) {
    attend_row<1, T>(tile);
  } else if (heads == 2) {
    attend_row<2, T>(tile);
  } else if (heads <= 4) {
    attend_row<4, T>(tile);
#endif
  } else if (heads <= 8) {
    attend_row<8, T>(tile);
  } else {
    return false;
  }
  return true;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
