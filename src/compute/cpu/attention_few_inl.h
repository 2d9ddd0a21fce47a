// Attention of one query or a few: lanes are the values of a head while scores are summed, and keys
// while they become exponentials. A query gets the bits that it would get among many whose scores
// are summed in the same order (sum_in_lanes). Included once per instruction set.
#include <limits>

#include "compute/cpu/attention_keys_inl.h"

#if defined(LLORCH_COMPUTE_CPU_ATTENTION_FEW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LLORCH_COMPUTE_CPU_ATTENTION_FEW_INL_H
#undef LLORCH_COMPUTE_CPU_ATTENTION_FEW_INL_H
#else
#define LLORCH_COMPUTE_CPU_ATTENTION_FEW_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

// Where a thread works with few queries; rows of `dim` are filled up with zeros.
struct FewRoom {
  std::int64_t dim;
  float* queries;  // (queries, dim), scaled
  float* vectors;  // (kLanes, dim): keys, then values
  float* weights;  // (queries, kKeyTile): scores, then exponentials
  float* sums;     // (queries, dim): weighted values
};

// Neighbours are added, then neighbours among those sums, until kLanes vectors have become one:
// lane i is what all lanes of vector i add up to.
HWY_INLINE Vec add_up_each(const Vec* parts) {
#if HWY_TARGET == HWY_SCALAR
  return parts[0];
#else
  Vec level[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) level[i] = parts[i];
  for (std::int64_t count = kLanes; count > 1; count /= 2) {
    for (std::int64_t i = 0; i < count / 2; ++i) {
      level[i] = hn::Add(hn::ConcatEven(Floats(), level[2 * i + 1], level[2 * i]),
                         hn::ConcatOdd(Floats(), level[2 * i + 1], level[2 * i]));
    }
  }
  return level[0];
#endif
}

// Scores of one query with kLanes keys.
HWY_INLINE Vec score_few(const float* query, const float* keys, std::int64_t dim) {
  Vec parts[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) parts[i] = hn::Zero(Floats());
  for (std::int64_t d = 0; d < dim; d += kLanes) {
    const Vec q = load(query + d);
    for (std::int64_t i = 0; i < kLanes; ++i)
      parts[i] = hn::MulAdd(load(keys + i * dim + d), q, parts[i]);
  }
  return add_up_each(parts);
}

// What one query has seen so far.
struct FewSeen {
  float largest = -std::numeric_limits<float>::infinity();
  float total = 0;
};

// Scores to exponentials; what the query does not see becomes nothing. This tile's maximum makes
// the sums smaller.
HWY_INLINE void weigh_few(float softcap, std::int64_t count, Seen seen, float* scores, float* sums,
                          std::int64_t dim, FewSeen& so_far) {
  const Vec lowest = hn::Set(Floats(), -std::numeric_limits<float>::infinity());
  const Vec zero = hn::Zero(Floats());
  const Vec cap = hn::Set(Floats(), softcap);
  const Vec from = hn::Set(Floats(), static_cast<float>(seen.from));
  const Vec to = hn::Set(Floats(), static_cast<float>(seen.to));
  const Vec lanes = load(kLaneNumbers);
  Vec most = lowest;
  Vec poison = zero;  // NaN where a score is not finite: exponentials and maxima may lose that
  for (std::int64_t i = 0; i < count; i += kLanes) {
    Vec s = load(scores + i);
    if (softcap > 0) s = hn::Mul(cap, tanh_of(hn::Div(s, cap)));
    const Vec index = hn::Add(lanes, hn::Set(Floats(), static_cast<float>(i)));
    const auto sees = hn::And(hn::Ge(index, from), hn::Lt(index, to));
    poison = hn::MulAdd(hn::IfThenElseZero(sees, s), zero, poison);
    s = hn::IfThenElse(sees, s, lowest);
    hn::StoreU(s, Floats(), scores + i);
    most = hn::Max(most, s);
  }
  const Vec before = hn::Set(Floats(), so_far.largest);
  const Vec now = hn::Max(before, hn::Set(Floats(), reduce_max(most)));
  const Vec base = hn::IfThenElse(hn::Eq(now, lowest), zero, now);
  const Vec shrink = exp_of(hn::Sub(before, base));
  so_far.largest = hn::GetLane(now);
  for (std::int64_t i = 0; i < count; i += kLanes)
    hn::StoreU(exp_of(hn::Sub(load(scores + i), base)), Floats(), scores + i);
  for (std::int64_t i = 0; i < dim; i += kLanes)
    hn::StoreU(hn::Mul(load(sums + i), shrink), Floats(), sums + i);
  Vec sum = zero;
  for (std::int64_t i = seen.from; i < seen.to; ++i)
    sum = hn::Add(sum, hn::Set(Floats(), scores[i]));
  const Vec total = hn::MulAdd(hn::Set(Floats(), so_far.total), shrink,
                               hn::Add(sum, hn::Set(Floats(), reduce_sum(poison))));
  so_far.total = hn::GetLane(total);
}

// sums[at …] += Σ weight · value over keys from..to of `values`, in their order.
template <int Vectors>
HWY_INLINE void value_few(const float* values, std::int64_t dim, const float* weights, Seen seen,
                          float* sums, std::int64_t at) {
  Vec parts[std::size_t{Vectors}];
  for (int v = 0; v < Vectors; ++v) parts[v] = load(sums + at + v * kLanes);
  for (std::int64_t key = seen.from; key < seen.to; ++key) {
    const float* value = values + key * dim + at;
    const Vec weight = hn::Set(Floats(), weights[key]);
    for (int v = 0; v < Vectors; ++v)
      parts[v] = hn::MulAdd(weight, load(value + v * kLanes), parts[v]);
  }
  for (int v = 0; v < Vectors; ++v) hn::StoreU(parts[v], Floats(), sums + at + v * kLanes);
}
HWY_INLINE void value_few(const float* values, std::int64_t dim, const float* weights, Seen seen,
                          float* sums) {
  std::int64_t at = 0;
  for (; at + 8 * kLanes <= dim; at += 8 * kLanes)
    value_few<8>(values, dim, weights, seen, sums, at);
  for (; at + 4 * kLanes <= dim; at += 4 * kLanes)
    value_few<4>(values, dim, weights, seen, sums, at);
  for (; at < dim; at += kLanes) value_few<1>(values, dim, weights, seen, sums, at);
}

// One tile of keys: kLanes of them at a time, and as many of the next tile asked for.
template <class T>
struct FewTile {
  const AttendTile& tile;
  const FewRoom& room;
  std::int64_t first;  // key that anybody sees
  std::int64_t begin, count;
  std::int64_t end;  // of all keys

  // Calls visit(index) with the vectors of keys or values index … at hand.
  template <class F>
  HWY_INLINE void each_group(const void* cache, std::int64_t block_stride, const F& visit) const {
    for (std::int64_t i = 0; i < count; i += kLanes) {
      const std::int64_t at = begin + i;
      const std::int64_t here = std::min(kLanes, count - i);
      fetch<T>(tile, cache, block_stride, std::min(first, at + here), at, here, kLanes, room.dim,
               room.vectors);
      const std::int64_t next = at + kKeyTile;
      ask_ahead<T>(tile, cache, block_stride, next, 0, std::min(kLanes, end - next));
      visit(i);
    }
  }
};

template <class T>
HWY_INLINE void attend_few(const AttendTile& tile) {
  const std::int64_t queries = tile.rows * tile.heads;
  FewRoom room;
  room.dim = whole_vectors(tile.head_dim);
  room.queries = tile.scratch;
  room.vectors = room.queries + queries * room.dim;
  room.weights = room.vectors + kLanes * room.dim;
  room.sums = room.weights + queries * kKeyTile;
  std::fill_n(room.queries, (queries + kLanes) * room.dim, 0.0F);
  std::fill_n(room.sums, queries * room.dim, 0.0F);
  for (std::int64_t query = 0; query < queries; ++query) {
    const float* q =
        tile.q + query / tile.heads * tile.q_row_stride + query % tile.heads * tile.head_dim;
    for (std::int64_t d = 0; d < tile.head_dim; ++d)
      room.queries[query * room.dim + d] = q[d] * tile.scale;
  }
  FewSeen so_far[kFewQueries];
  const std::int64_t first =
      tile.window > 0 ? std::max<std::int64_t>(0, tile.first_position - tile.window + 1) : 0;
  const std::int64_t end = tile.first_position + tile.rows;
  for (std::int64_t begin = first / kKeyTile * kKeyTile; begin < end; begin += kKeyTile) {
    const std::int64_t count = std::min(kKeyTile, end - begin);
    const FewTile<T> keys = {tile, room, first, begin, count, end};
    keys.each_group(tile.keys, tile.key_block_stride, [&](std::int64_t i) HWY_ATTR {
      for (std::int64_t query = 0; query < queries; ++query) {
        const Vec scores = score_few(room.queries + query * room.dim, room.vectors, room.dim);
        hn::StoreU(scores, Floats(), room.weights + query * kKeyTile + i);
      }
    });
    if (tile.scores != nullptr) tell_scores(tile, room.weights, kKeyTile, 1, begin, count);
    Seen seen[kFewQueries];
    for (std::int64_t query = 0; query < queries; ++query) {
      seen[query] = seen_by(tile, query, begin, count);
      weigh_few(tile.softcap, count, seen[query], room.weights + query * kKeyTile,
                room.sums + query * room.dim, room.dim, so_far[query]);
    }
    keys.each_group(tile.values, tile.value_block_stride, [&](std::int64_t i) HWY_ATTR {
      for (std::int64_t query = 0; query < queries; ++query) {
        const Seen here = {std::clamp<std::int64_t>(seen[query].from - i, 0, kLanes),
                           std::clamp<std::int64_t>(seen[query].to - i, 0, kLanes)};
        value_few(room.vectors, room.dim, room.weights + query * kKeyTile + i, here,
                  room.sums + query * room.dim);
      }
    });
  }
  for (std::int64_t query = 0; query < queries; ++query) {
    float* out =
        tile.out + query / tile.heads * tile.out_row_stride + query % tile.heads * tile.head_dim;
    const float share = 1.0F / so_far[query].total;
    for (std::int64_t d = 0; d < tile.head_dim; ++d)
      out[d] = room.sums[query * room.dim + d] * share;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
