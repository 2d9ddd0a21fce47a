// Attention of a run of rows of one sequence: a block for 64 (query, head) pairs of a key head.
#include "compute/cuda/tiled_attention.cuh"

namespace llorch::compute::cuda {
namespace {

constexpr int kPrefillThreads = 128;
constexpr int kPairs = 64;  // of a block, 16 of each warp

template <int Dim>
struct PrefillShape {
  static constexpr int kKeyStride = Dim + 32;
  static constexpr int kValueStride = Dim + 8;
  static constexpr int kStage = kKeyTile * (kKeyStride + kValueStride);
  static constexpr int kShared = 2 * kStage * 2;
  static_assert(kShared <= (Dim == 256 ? 146 : 80) * 1024, "is_tiled() promises this much");
};

// A warp's 16 pairs: what it holds from tile to tile.
template <int Dim>
struct PrefillWarp {
  std::uint32_t q[Dim / 16][4];
  Seen row0, row8;
  Running<Dim / 8> split;
  Running<Dim / 8> merged;  // of the splits before

  // `bad_keys`: bits of keys whose values were no numbers and are zeros now.
  __device__ void add_tile(const Attend& args, int tile, const __half* keys, const __half* values,
                           std::uint64_t bad_keys) {
    using Shape = PrefillShape<Dim>;
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int t = static_cast<int>(threadIdx.x) % 4;
    Part s[2];
    float max0 = -INFINITY, max8 = -INFINITY;
#pragma unroll
    for (int n = 0; n < 2 * kPartBlocks; ++n) {
      score8<Dim>(s[n / kPartBlocks][n % kPartBlocks], q, [&](int chunk) {
        return *reinterpret_cast<const uint4*>(keys + (n * 8 + g) * Shape::kKeyStride + t * 8 +
                                               chunk * 32);
      });
    }
    mask(s[0], tile * kKeyTile, args, row0, row8, max0, max8);
    mask(s[1], tile * kKeyTile + 32, args, row0, row8, max0, max8);
    const float2 fades = split.raise(max0, max8);
    float sum0[2], sum8[2];
    weigh(s[0], split.m0, split.m8, sum0[0], sum8[0]);
    weigh(s[1], split.m0, split.m8, sum0[1], sum8[1]);
    if (bad_keys != 0) spoil(s, bad_keys, sum0[0], sum8[0]);
    split.step(fades, sum0, sum8);
#pragma unroll
    for (int k = 0; k < kKeyTile; k += 16) {
      const Part& half = s[k / 32];
      const int n = k % 32 / 8;
      const WeightPair pairs[4] = {WeightPair::of(half[n][0], half[n][1]),
                                   WeightPair::of(half[n][2], half[n][3]),
                                   WeightPair::of(half[n + 1][0], half[n + 1][1]),
                                   WeightPair::of(half[n + 1][2], half[n + 1][3])};
      const std::uint32_t high[4] = {pairs[0].high, pairs[1].high, pairs[2].high, pairs[3].high};
      const std::uint32_t low[4] = {pairs[0].low, pairs[1].low, pairs[2].low, pairs[3].low};
#pragma unroll
      for (int c = 0; c < Dim; c += 16)
        add_values<Shape::kValueStride>(split.o[c / 8], split.o[c / 8 + 1], high, low, values, k,
                                        c);
    }
  }

  // Rows that see a bad key become NaN.
  __device__ static void spoil(const Part (&s)[2], std::uint64_t bad_keys, float& sum0,
                               float& sum8) {
    bool is_bad[2] = {};
#pragma unroll
    for (int n = 0; n < 2 * kPartBlocks; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = n * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
        const bool sees = s[n / kPartBlocks][n % kPartBlocks][i] > 0;
        if (sees && (bad_keys >> key & 1) != 0) is_bad[i / 2] = true;
      }
    }
    const unsigned quad = 0xFU << (threadIdx.x % 32 / 4 * 4);
    if ((__ballot_sync(0xFFFFFFFFU, is_bad[0]) & quad) != 0) sum0 = NAN;
    if ((__ballot_sync(0xFFFFFFFFU, is_bad[1]) & quad) != 0) sum8 = NAN;
  }

  __device__ void end_split() {
    const float2 factors0 = merge_factors(merged.m0, split.m0);
    const float2 factors8 = merge_factors(merged.m8, split.m8);
    merged.l0 = merge(merged.l0, split.l0, factors0);
    merged.l8 = merge(merged.l8, split.l8, factors8);
#pragma unroll
    for (int c = 0; c < Dim / 8; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        merged.o[c][i] = merge(merged.o[c][i], split.o[c][i], i < 2 ? factors0 : factors8);
    }
    split = Running<Dim / 8>();
  }
};

// Zero times what is no number is no number, so values that only some rows of a block see are
// looked at: what is not finite becomes zero. Bits of their keys; all threads of the block call.
template <int Dim>
__device__ std::uint64_t clean_values(__half* values) {
  __shared__ unsigned long long bad_keys;
  if (threadIdx.x == 0) bad_keys = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kKeyTile * (Dim / 8); i += kPrefillThreads) {
    const int key = i / (Dim / 8);
    auto* at = reinterpret_cast<uint4*>(values + key * PrefillShape<Dim>::kValueStride +
                                        i % (Dim / 8) * 8);
    uint4 words = *at;
    bool is_bad = false;
    for (std::uint32_t* word : {&words.x, &words.y, &words.z, &words.w}) {
      constexpr std::uint32_t kExponent = 0x7C00U;
      for (const std::uint32_t shift : {0U, 16U}) {
        if ((*word >> shift & kExponent) != kExponent) continue;
        *word &= ~(0xFFFFU << shift);
        is_bad = true;
      }
    }
    if (!is_bad) continue;
    *at = words;
    atomicOr(&bad_keys, 1ULL << key);
  }
  __syncthreads();
  return bad_keys;
}

template <int Dim, class Rows>
__global__ void __launch_bounds__(kPrefillThreads)
    prefill_attention(const __grid_constant__ Attend args, SequenceRun run) {
  using Shape = PrefillShape<Dim>;
  extern __shared__ __align__(128) unsigned char memory[];
  after_previous();
  auto* stages = reinterpret_cast<__half*>(memory);
  const int kv_head = static_cast<int>(blockIdx.y);
  const int t = static_cast<int>(threadIdx.x) % 4;
  const int pairs = run.rows * args.group;
  const int first_pair = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kPairs;  // longest first
  const int pair0 =
      first_pair + static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const auto row_of = [&](int pair) { return min(pair, pairs - 1) / args.group; };
  const auto column_of = [&](int pair) {
    return (kv_head * args.group + min(pair, pairs - 1) % args.group) * Dim;
  };
  const auto query = [&](int pair) {
    return args.q + static_cast<std::int64_t>(run.first_row + row_of(pair)) * args.q_stride +
           column_of(pair) + t * 8;
  };
  const int first_position = run.first_position + row_of(first_pair);
  const int last = run.first_position + row_of(first_pair + kPairs - 1);
  require((last >> args.block_bits) < args.places.blocks_max);
  const int tiles = last / kKeyTile + 1;
  // From the split of the oldest key that a row of this block sees.
  const int first_tile = Seen::at(args, first_position).first / kSplitKeys * kSplitTiles;
  const auto copy_tile = [&](int tile) {
    if (tile < tiles) {
      __half* keys = stages + tile % 2 * Shape::kStage;
      copy_rows<Dim, Shape::kKeyStride, kPrefillThreads, Rows>(
          keys, args.keys, args, run.sequence, kv_head, tile * kKeyTile, kKeyTile, last + 1);
      copy_rows<Dim, Shape::kValueStride, kPrefillThreads, Rows>(
          keys + kKeyTile * Shape::kKeyStride, args.values, args, run.sequence, kv_head,
          tile * kKeyTile, kKeyTile, last + 1);
    }
    copy_async_commit();
  };
  copy_tile(first_tile);
  PrefillWarp<Dim> warp;
  warp.row0 = Seen::at(args, run.first_position + row_of(pair0));
  warp.row8 = Seen::at(args, run.first_position + row_of(pair0 + 8));
  load_queries<Dim>(warp.q, query(pair0), query(pair0 + 8));
  for (int tile = first_tile; tile < tiles; ++tile) {
    copy_tile(tile + 1);
    copy_async_wait<1>();
    __syncthreads();
    __half* keys = stages + tile % 2 * Shape::kStage;
    __half* values = keys + kKeyTile * Shape::kKeyStride;
    const bool is_border = tile * kKeyTile + kKeyTile > first_position;
    warp.add_tile(args, tile, keys, values, is_border ? clean_values<Dim>(values) : 0);
    if (tile % kSplitTiles == kSplitTiles - 1 || tile + 1 == tiles) warp.end_split();
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int pair = i < 2 ? pair0 : pair0 + 8;
    if (pair >= pairs) continue;
#pragma unroll
    for (int c = 0; c < Dim / 8; ++c)
      store_attended(args, run.first_row + row_of(pair), column_of(pair) + c * 8 + t * 2 + i % 2,
                     __fdiv_rn(warp.merged.o[c][i], i < 2 ? warp.merged.l0 : warp.merged.l8));
  }
}

int log2_of(std::int64_t power) {
  int bits = 0;
  while ((std::int64_t{1} << bits) < power) ++bits;
  return bits;
}

}  // namespace

void launch_prefill_attention(const Attend& args, const SequenceRun& run, const Queue& queue) {
  with_heads(args, [&](auto head_dim, auto kept) {
    constexpr int kDim = decltype(head_dim)::value;
    launch_shaped("prefill attention", prefill_attention<kDim, decltype(kept)>, queue,
                  {.blocks = dim3(static_cast<unsigned>(ceil_div(run.rows * args.group, kPairs)),
                                  static_cast<unsigned>(args.cache.kv_heads)),
                   .threads = kPrefillThreads,
                   .shared_bytes = PrefillShape<kDim>::kShared},
                  args, run);
  });
}

// Neighbouring runs of one row are one launch; longer ones have a launch each.
void launch_tiled_attention(const AttentionArgs& args, const RoundedTarget& rounded,
                            const SplitWorkspace& workspace, const Queue& queue) {
  const Attend attend{
      .q = static_cast<const float*>(args.q.data),
      .q_stride = args.q.row_stride,
      .out = static_cast<float*>(args.out.data),
      .out_stride = args.out.row_stride,
      .rounded = RoundedRows{rounded},
      .keys = args.cache.keys.data,
      .values = args.cache.values.data,
      .cache = cache_shape(args.cache.keys),
      .is_quantised = args.cache.keys.dtype == tensor::DType::Q8_0,
      .block_bits = log2_of(args.cache.keys.dims[2]),
      .places = row_places(args),
      .heads = static_cast<int>(args.q.dims[1]),
      .group = static_cast<int>(args.q.dims[1] / args.cache.keys.dims[1]),
      .scale = args.scale,
      .softcap = args.softcap,
      .window = args.window,
  };
  std::int64_t first = 0;  // of the single rows that wait
  std::int64_t count = 0;
  std::int64_t last_position = 0;
  const auto launch_singles = [&] {
    if (count > 0)
      launch_decode_attention(attend, first, count, splits_for(last_position), workspace, queue);
    count = 0;
    last_position = 0;
  };
  for (const SequenceRun& run : args.runs) {
    if (run.rows > 1) {
      launch_singles();
      launch_prefill_attention(attend, run, queue);
      continue;
    }
    if (count == 0) first = run.first_row;
    ++count;
    last_position = std::max<std::int64_t>(last_position, run.first_position);
  }
  launch_singles();
}

}  // namespace llorch::compute::cuda
