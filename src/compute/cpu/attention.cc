// Attention of the queries of a few rows that share a key head, over paged keys and values.
// Compiled once per instruction set, apart from the other kernels.
//
// Lanes are queries: scores, maxima, exponentials and sums never cross them. Keys come in tiles of
// 64 that begin at multiples of 64, and each tile rescales what came before it. So what a query
// gets follows from its own position alone, whatever rows and heads stand beside it.
//
// A score's sum runs through 32 values of a head, then those sums are added. The sum of a tile's
// exponentials is kLanes sums, of each kLanes'th key. Chunks of kKeyChunk keys are attended one by
// one from nothing, and joined in their order. So a single row may have keys in its lanes
// (attention_turned_inl.h), and its chunks may be attended by several threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "compute/cpu/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "compute/cpu/attention_keys_inl.h"
#include "compute/cpu/attention_turned_inl.h"

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

// Where a thread works. Rows of `dim` are filled up to whole vectors, queries likewise.
struct AttentionRoom {
  std::int64_t lanes;  // queries, filled up
  std::int64_t dim;    // of a head, filled up
  float* queries;      // (head_dim, lanes), scaled
  float* vectors;      // (kKeyTile, dim): keys, then values
  float* weights;      // (kKeyTile, lanes): scores, then exponentials
  float* sums;         // (lanes, dim): weighted values of this chunk
  float* largest;      // (lanes): score of this chunk
  float* totals;       // (kLanes, lanes): exponentials of this chunk, of each kLanes'th key
  float* shrink;       // (lanes): by what this tile's maximum makes the sums smaller
  float* joined;       // (lanes, part_floats): chunks before
};

HWY_INLINE AttentionRoom lay_out(const AttendTile& tile) {
  AttentionRoom room;
  room.lanes = whole_vectors(tile.rows * tile.heads);
  room.dim = whole_vectors(tile.head_dim);
  float* at = tile.scratch;
  const auto take = [&](std::int64_t floats) {
    float* place = at;
    at += floats;
    return place;
  };
  room.queries = take(tile.head_dim * room.lanes);
  room.vectors = take(kKeyTile * room.dim);
  room.weights = take(kKeyTile * room.lanes);
  room.sums = take(room.lanes * room.dim);
  room.largest = take(room.lanes);
  room.totals = take(kLanes * room.lanes);
  room.shrink = take(room.lanes);
  room.joined = take(room.lanes * part_floats(tile.head_dim));
  return room;
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kVectorsAtOnce = 4;  // of sums, for each of four keys or queries: 16 registers
#else
constexpr int kVectorsAtOnce = 2;
#endif

// Scores of `Keys` keys with `Vectors` vectors of queries: sums over 32 values of a head, then
// those together.
template <int Keys, int Vectors>
HWY_INLINE void score(const AttentionRoom& room, std::int64_t head_dim, std::int64_t key,
                      std::int64_t lane) {
  constexpr std::int64_t kStretch = 32;
  const float* keys = room.vectors + key * room.dim;
  const float* queries = room.queries + lane;
  float* out = room.weights + key * room.lanes + lane;
  for (std::int64_t begin = 0; begin < head_dim; begin += kStretch) {
    const std::int64_t end = HWY_MIN(begin + kStretch, head_dim);
    Vec sums[std::size_t{Keys}][std::size_t{Vectors}];
    for (int k = 0; k < Keys; ++k) {
      for (int v = 0; v < Vectors; ++v) sums[k][v] = hn::Zero(Floats());
    }
    for (std::int64_t d = begin; d < end; ++d) {
      Vec q[std::size_t{Vectors}];
      for (int v = 0; v < Vectors; ++v) q[v] = load(queries + d * room.lanes + v * kLanes);
      for (int k = 0; k < Keys; ++k) {
        const Vec value = hn::Set(Floats(), keys[k * room.dim + d]);
        for (int v = 0; v < Vectors; ++v) sums[k][v] = hn::MulAdd(value, q[v], sums[k][v]);
      }
    }
    for (int k = 0; k < Keys; ++k) {
      for (int v = 0; v < Vectors; ++v) {
        float* place = out + k * room.lanes + v * kLanes;
        const Vec sum = begin == 0 ? sums[k][v] : hn::Add(load(place), sums[k][v]);
        hn::StoreU(sum, Floats(), place);
      }
    }
  }
}

constexpr std::int64_t kKeysAtOnce = 8;  // keys are filled up to a multiple of it

HWY_INLINE void score_tile(const AttentionRoom& room, std::int64_t head_dim, std::int64_t keys) {
  std::int64_t lane = 0;
  for (; lane + kVectorsAtOnce * kLanes <= room.lanes; lane += kVectorsAtOnce * kLanes) {
    for (std::int64_t key = 0; key < keys; key += 4)
      score<4, kVectorsAtOnce>(room, head_dim, key, lane);
  }
  for (; lane < room.lanes; lane += kLanes) {
    for (std::int64_t key = 0; key < keys; key += kKeysAtOnce)
      score<kKeysAtOnce, 1>(room, head_dim, key, lane);
  }
}

// Scores to exponentials, for one vector of queries. Where not every query sees every key, `from`
// and `to` hold each lane's part.
template <bool everything>
HWY_INLINE void weigh(const AttentionRoom& room, std::int64_t lane, std::int64_t count, Vec from,
                      Vec to, float softcap) {
  const Vec lowest = hn::Set(Floats(), -std::numeric_limits<float>::infinity());
  const Vec zero = hn::Zero(Floats());
  const Vec cap = hn::Set(Floats(), softcap);
  float* weights = room.weights + lane;
  Vec most = lowest;
  Vec poison = zero;  // NaN where a score is not finite: exponentials and maxima may lose that
  for (std::int64_t i = 0; i < count; ++i) {
    float* place = weights + i * room.lanes;
    Vec s = load(place);
    if (softcap > 0) s = hn::Mul(cap, tanh_of(hn::Div(s, cap)));
    if constexpr (everything) {
      poison = hn::MulAdd(s, zero, poison);
    } else {
      const Vec index = hn::Set(Floats(), static_cast<float>(i));
      const auto seen = hn::And(hn::Ge(index, from), hn::Lt(index, to));
      poison = hn::MulAdd(hn::IfThenElseZero(seen, s), zero, poison);
      s = hn::IfThenElse(seen, s, lowest);
    }
    if (softcap > 0 || !everything) hn::StoreU(s, Floats(), place);
    most = hn::Max(most, s);
  }
  const Vec before = load(room.largest + lane);
  const Vec now = hn::Max(before, most);
  hn::StoreU(now, Floats(), room.largest + lane);
  // A lane that has seen nothing yet.
  const Vec base = hn::IfThenElse(hn::Eq(now, lowest), zero, now);
  const Vec shrink = exp_of(hn::Sub(before, base));
  hn::StoreU(shrink, Floats(), room.shrink + lane);
  for (std::int64_t first = 0; first < kLanes; ++first) {
    Vec sum = zero;
    for (std::int64_t i = first; i < count; i += kLanes) {
      float* place = weights + i * room.lanes;
      const Vec weight = exp_of(hn::Sub(load(place), base));
      hn::StoreU(weight, Floats(), place);
      sum = hn::Add(sum, weight);
    }
    if (first == 0) sum = hn::Add(sum, poison);
    float* total = room.totals + first * room.lanes + lane;
    hn::StoreU(hn::MulAdd(load(total), shrink, sum), Floats(), total);
  }
}

// sums[query][…] += weight · value for keys from..to, in their order.
template <int Queries, int Vectors>
HWY_INLINE void add_values(const AttentionRoom& room, std::int64_t query, std::int64_t from,
                           std::int64_t to, std::int64_t at) {
  float* out = room.sums + query * room.dim + at;
  Vec sums[std::size_t{Queries}][std::size_t{Vectors}];
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) sums[q][v] = load(out + q * room.dim + v * kLanes);
  }
  for (std::int64_t key = from; key < to; ++key) {
    const float* value = room.vectors + key * room.dim + at;
    const float* weights = room.weights + key * room.lanes + query;
    Vec values[std::size_t{Vectors}];
    for (int v = 0; v < Vectors; ++v) values[v] = load(value + v * kLanes);
    for (int q = 0; q < Queries; ++q) {
      const Vec weight = hn::Set(Floats(), weights[q]);
      for (int v = 0; v < Vectors; ++v) sums[q][v] = hn::MulAdd(weight, values[v], sums[q][v]);
    }
  }
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v)
      hn::StoreU(sums[q][v], Floats(), out + q * room.dim + v * kLanes);
  }
}
template <int Queries>
HWY_INLINE void add_values(const AttentionRoom& room, std::int64_t query, std::int64_t from,
                           std::int64_t to) {
  if (from >= to) return;
  std::int64_t at = 0;
  for (; at + kVectorsAtOnce * kLanes <= room.dim; at += kVectorsAtOnce * kLanes)
    add_values<Queries, kVectorsAtOnce>(room, query, from, to, at);
  for (; at < room.dim; at += kLanes) add_values<Queries, 1>(room, query, from, to, at);
}

// `Queries` queries side by side: what all of them see together, the rest one by one.
template <int Queries>
HWY_INLINE void value_queries(const AttendTile& tile, const AttentionRoom& room, std::int64_t query,
                              std::int64_t begin, std::int64_t count) {
  Seen each[std::size_t{Queries}];
  Seen all = {0, count};
  for (int q = 0; q < Queries; ++q) {
    each[q] = seen_by(tile, query + q, begin, count);
    all = {std::max(all.from, each[q].from), std::min(all.to, each[q].to)};
    float* sums = room.sums + (query + q) * room.dim;
    const Vec shrink = hn::Set(Floats(), room.shrink[query + q]);
    for (std::int64_t i = 0; i < room.dim; i += kLanes)
      hn::StoreU(hn::Mul(load(sums + i), shrink), Floats(), sums + i);
  }
  if (all.from >= all.to) {
    for (int q = 0; q < Queries; ++q) add_values<1>(room, query + q, each[q].from, each[q].to);
    return;
  }
  for (int q = 0; q < Queries; ++q) add_values<1>(room, query + q, each[q].from, all.from);
  add_values<Queries>(room, query, all.from, all.to);
  for (int q = 0; q < Queries; ++q) add_values<1>(room, query + q, all.to, each[q].to);
}

HWY_INLINE void value_tile(const AttendTile& tile, const AttentionRoom& room, std::int64_t begin,
                           std::int64_t count) {
  const std::int64_t queries = tile.rows * tile.heads;
  std::int64_t q = 0;
  for (; q + 4 <= queries; q += 4) value_queries<4>(tile, room, q, begin, count);
  if (queries - q == 3) return value_queries<3>(tile, room, q, begin, count);
  if (queries - q == 2) return value_queries<2>(tile, room, q, begin, count);
  if (queries - q == 1) value_queries<1>(tile, room, q, begin, count);
}

HWY_INLINE void weigh_tile(const AttendTile& tile, const AttentionRoom& room, std::int64_t begin,
                           std::int64_t count) {
  const std::int64_t queries = tile.rows * tile.heads;
  const Seen first = seen_by(tile, 0, begin, count);
  const Seen last = seen_by(tile, queries - 1, begin, count);
  const bool everything = last.from == 0 && first.to == count;
  for (std::int64_t lane = 0; lane < room.lanes; lane += kLanes) {
    if (everything) {
      weigh<true>(room, lane, count, hn::Zero(Floats()), hn::Zero(Floats()), tile.softcap);
      continue;
    }
    HWY_ALIGN float from[kLanes];
    HWY_ALIGN float to[kLanes];
    for (std::int64_t i = 0; i < kLanes; ++i) {
      const Seen seen = lane + i < queries ? seen_by(tile, lane + i, begin, count) : Seen{0, count};
      from[i] = static_cast<float>(seen.from);
      to[i] = static_cast<float>(seen.to);
    }
    weigh<false>(room, lane, count, hn::Load(Floats(), from), hn::Load(Floats(), to), tile.softcap);
  }
}

// What queries have of the chunk that ends before `end`, joined to what they have of those before;
// or kept as it is, where the tile is for that. Who saw none of it is left alone, whatever others
// saw.
HWY_INLINE void end_chunk(const AttendTile& tile, const AttentionRoom& room, std::int64_t chunk) {
  const std::int64_t begin = chunk * kKeyChunk;
  const std::int64_t stride = part_floats(tile.head_dim);
  for (std::int64_t query = 0; query < tile.rows * tile.heads; ++query) {
    const std::int64_t position = tile.first_position + query / tile.heads;
    const std::int64_t first =
        tile.window > 0 ? std::max<std::int64_t>(0, position - tile.window + 1) : 0;
    if (position < begin || first >= begin + kKeyChunk) continue;
    const Part part = {room.largest[query], add_up(room.totals + query, room.lanes),
                       room.sums + query * room.dim};
    if (tile.parts != nullptr) {
      keep_part(part, tile.head_dim,
                tile.parts + (chunk - tile.first_chunk) * tile.part_stride + query * stride);
    } else if (first >= begin || begin == 0) {
      keep_part(part, tile.head_dim, room.joined + query * stride);
    } else {
      join_part(part, tile.head_dim, room.joined + query * stride);
    }
  }
}

HWY_INLINE void begin_chunk(const AttentionRoom& room) {
  std::fill_n(room.sums, room.lanes * room.dim, 0.0F);
  std::fill_n(room.largest, room.lanes, -std::numeric_limits<float>::infinity());
  std::fill_n(room.totals, kLanes * room.lanes, 0.0F);
}

template <class T>
HWY_INLINE void attend_queries(const AttendTile& tile) {
  const AttentionRoom room = lay_out(tile);
  const std::int64_t queries = tile.rows * tile.heads;
  std::fill_n(room.queries, tile.head_dim * room.lanes, 0.0F);
  for (std::int64_t query = 0; query < queries; ++query) {
    const float* q =
        tile.q + query / tile.heads * tile.q_row_stride + query % tile.heads * tile.head_dim;
    for (std::int64_t d = 0; d < tile.head_dim; ++d)
      room.queries[d * room.lanes + query] = q[d] * tile.scale;
  }
  std::fill_n(room.vectors, kKeyTile * room.dim, 0.0F);
  const auto [first, end] = keys_of(tile);
  for (std::int64_t begin = first / kKeyTile * kKeyTile; begin < end; begin += kKeyTile) {
    if (begin % kKeyChunk == 0 || begin <= first) begin_chunk(room);
    const std::int64_t count = std::min(kKeyTile, end - begin);
    const std::int64_t all = (count + kKeysAtOnce - 1) / kKeysAtOnce * kKeysAtOnce;
    const std::int64_t hidden = std::max<std::int64_t>(first - begin, 0);
    fetch<T>(tile, tile.keys, tile.key_block_stride, first, begin, count, all, room.dim,
             room.vectors);
    ask_ahead<T>(tile, tile.values, tile.value_block_stride, begin, hidden, count);
    score_tile(room, tile.head_dim, all);
    if (tile.scores != nullptr) tell_scores(tile, room.weights, 1, room.lanes, begin, count);
    weigh_tile(tile, room, begin, count);
    fetch<T>(tile, tile.values, tile.value_block_stride, first, begin, count, count, room.dim,
             room.vectors);
    const std::int64_t next = begin + kKeyTile;
    ask_ahead<T>(tile, tile.keys, tile.key_block_stride, next, 0, std::min(kKeyTile, end - next));
    value_tile(tile, room, begin, count);
    if (next % kKeyChunk == 0 || next >= end) end_chunk(tile, room, begin / kKeyChunk);
  }
  if (tile.parts != nullptr) return;
  for (std::int64_t query = 0; query < queries; ++query) {
    tell_part(
        room.joined + query * part_floats(tile.head_dim), tile.head_dim,
        tile.out + query / tile.heads * tile.out_row_stride + query % tile.heads * tile.head_dim);
  }
}

template <class T>
HWY_INLINE void attend_typed(const AttendTile& tile) {
  if (attend_turned<T>(tile)) return;
  AttendTile one = tile;
  one.kv_heads = 1;
  for (std::int64_t head = 0; head < tile.kv_heads; ++head) {
    attend_queries<T>(one);
    one.q += tile.heads * tile.head_dim;
    one.out += tile.heads * tile.head_dim;
    one.head_offset += tile.block_tokens * tile.head_dim;
    if (one.parts != nullptr) one.parts += tile.heads * part_floats(tile.head_dim);
  }
}

void attend(const AttendTile& tile) {
  if (tile.cache_dtype == tensor::DType::F16) return attend_typed<Half>(tile);
  if (tile.cache_dtype == tensor::DType::Q8_0) return attend_typed<QuantBlock>(tile);
  attend_typed<float>(tile);
}

void join_parts(const JoinParts& args) {
  const std::int64_t floats = part_floats(args.head_dim);
  for (std::int64_t head = 0; head < args.heads; ++head) {
    float* first = args.parts + head * floats;
    for (std::int64_t chunk = 1; chunk < args.chunks; ++chunk) {
      const float* next = first + chunk * args.part_stride;
      join_part({next[0], next[1], next + kPartHead}, args.head_dim, first);
    }
    tell_part(first, args.head_dim, args.out + head * args.head_dim);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();
