// Attention of single rows: a block for a row, a key head and a split of its keys.
#include "compute/cuda/tiled_attention.cuh"

namespace llorch::compute::cuda {
namespace {

constexpr int kDecodeThreads = 128;
constexpr int kWarps = kDecodeThreads / kWarpThreads;

template <int Dim>
struct DecodeShape {
  static constexpr int kRowStride = Dim + 8;  // of keys and values
  static constexpr int kWeightStride = kSplitKeys + 8;
  static constexpr int kShared = (kSplitKeys * 2 * kRowStride + 2 * 16 * kWeightStride) * 2;
  static constexpr int kPart = Dim + 2;  // of a head: maximum, sum, values
  static_assert(kShared <= (Dim == 256 ? 146 : 80) * 1024, "is_tiled() promises this much");
  // A warp's columns: 16 at a time, every 64.
  static constexpr int kColumnBlocks = (Dim / 16 + kWarps - 1) / kWarps;
};

// One block's split. Warps share the keys while scoring and the columns while adding values.
template <int Dim, class Rows>
class DecodeSplit {
 public:
  using Shape = DecodeShape<Dim>;
  using Sums = Running<2 * Shape::kColumnBlocks>;

  __device__ DecodeSplit(const Attend& args, std::int64_t first_row, unsigned char* memory)
      : args_(args),
        row(first_row + blockIdx.z),
        position(args.places.positions[row]),
        sequence_(args.places.sequences[row]),
        seen_(Seen::at(args, position)),
        first_(static_cast<int>(blockIdx.x) * kSplitKeys),
        keys_(reinterpret_cast<__half*>(memory)),
        values_(keys_ + kSplitKeys * Shape::kRowStride),
        weights_(values_ + kSplitKeys * Shape::kRowStride),
        rest_(weights_ + 16 * Shape::kWeightStride),
        warp_(static_cast<int>(threadIdx.x) / 32),
        g_(static_cast<int>(threadIdx.x) % 32 / 4),
        t_(static_cast<int>(threadIdx.x) % 4) {
    require(sequence_ >= 0 && sequence_ < args.places.num_sequences);
    require(position >= 0 && (position >> args.block_bits) < args.places.blocks_max);
    first_split = seen_.first / kSplitKeys;
    last_split = position / kSplitKeys;
    const int split = static_cast<int>(blockIdx.x);
    present = split >= first_split && split <= last_split;
    count_ = present ? min(kSplitKeys, (position - first_) / kKeyTile * kKeyTile + kKeyTile) : 0;
    if (present && position - first_ < kSplitKeys)
      own_at_ = cache_at<Dim>(args_, sequence_, static_cast<int>(blockIdx.y), position);
  }

  // Earlier positions' keys and values: complete before the kernel that computes this one's began.
  __device__ void copy_earlier() {
    if (present) copy(first_, count_, position);
  }

  __device__ void score() {
    copy_own();
    const int kv_head = static_cast<int>(blockIdx.y);
    const float* q = args_.q + row * args_.q_stride +
                     static_cast<std::int64_t>(kv_head) * args_.group * Dim + t_ * 8;
    std::uint32_t fragments[Dim / 16][4];
    load_queries<Dim>(fragments, q + min(g_, args_.group - 1) * Dim,
                      q + min(g_ + 8, args_.group - 1) * Dim);
    copy_async_wait<0>();
    __syncthreads();
    Part s;
    float max0 = -INFINITY;
    float max8 = -INFINITY;
    const bool busy = warp_ * 32 < count_;
    if (busy) {
#pragma unroll
      for (int n = 0; n < kPartBlocks; ++n)
        score8<Dim>(s[n], fragments, [&](int chunk) {
          return *reinterpret_cast<const uint4*>(
              keys_ + (warp_ * 32 + n * 8 + g_) * Shape::kRowStride + t_ * 8 + chunk * 32);
        });
      mask(s, first_ + warp_ * 32, args_, seen_, seen_, max0, max8);
    }
    auto& sums = shared();
    if (t_ == 0) {
      sums.max[warp_][g_] = max0;
      sums.max[warp_][g_ + 8] = max8;
    }
    __syncthreads();
    if (busy) leave_weights(s, sums);
    __syncthreads();
  }

  __device__ void add(Sums& running) {
    const auto& sums = shared();
#pragma unroll 1
    for (int i = 0; i * kKeyTile < count_; ++i) {
      const auto pair = [&](const float(&of)[4][16], int head, float(&to)[2]) {
        to[0] = of[2 * i][head];
        to[1] = of[2 * i + 1][head];
      };
      float max0[2], max8[2], sum0[2], sum8[2];
      pair(sums.max, g_, max0);
      pair(sums.max, g_ + 8, max8);
      pair(sums.sum, g_, sum0);
      pair(sums.sum, g_ + 8, sum8);
      running.step(running.raise(fmaxf(max0[0], max0[1]), fmaxf(max8[0], max8[1])), sum0, sum8);
#pragma unroll
      for (int k = 0; k < kKeyTile; k += 16) {
        const int at = i * kKeyTile + k + t_ * 2;
        const auto word = [&](const __half* from, int r, int c) {
          return *reinterpret_cast<const std::uint32_t*>(from + r * Shape::kWeightStride + at + c);
        };
        const std::uint32_t high[4] = {word(weights_, g_, 0), word(weights_, g_ + 8, 0),
                                       word(weights_, g_, 8), word(weights_, g_ + 8, 8)};
        const std::uint32_t low[4] = {word(rest_, g_, 0), word(rest_, g_ + 8, 0),
                                      word(rest_, g_, 8), word(rest_, g_ + 8, 8)};
#pragma unroll
        for (int c = 0; c < Shape::kColumnBlocks; ++c) {
          const int column = (warp_ + c * kWarps) * 16;
          if (column < Dim)
            add_values<Shape::kRowStride>(running.o[2 * c], running.o[2 * c + 1], high, low,
                                          values_, i * kKeyTile + k, column);
        }
      }
    }
  }

  // What is merged from this split alone: nothing, times 0, and this, times 1.
  __device__ void store(const Sums& running) const {
    const int first_column = static_cast<int>(blockIdx.y) * args_.group * Dim;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = g_ + half * 8;
      if (head >= args_.group) continue;
      const float sum = half == 0 ? running.l0 : running.l8;
#pragma unroll
      for (int c = 0; c < 2 * Shape::kColumnBlocks; ++c) {
        const int column = (warp_ + c / 2 * kWarps) * 16 + c % 2 * 8 + t_ * 2;
        if (column >= Dim) continue;
        store_two_attended(args_, row, first_column + head * Dim + column,
                           __fdiv_rn(__fadd_rn(0.0F, running.o[c][half * 2]), sum),
                           __fdiv_rn(__fadd_rn(0.0F, running.o[c][half * 2 + 1]), sum));
      }
    }
  }

  // The split's sums as (group, kPart).
  __device__ void leave(const Sums& running, float* parts) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int head = i < 2 ? g_ : g_ + 8;
      if (head >= args_.group) continue;
      float* part = parts + head * Shape::kPart;
#pragma unroll
      for (int c = 0; c < 2 * Shape::kColumnBlocks; ++c) {
        const int column = (warp_ + c / 2 * kWarps) * 16 + c % 2 * 8;
        if (column < Dim) part[2 + column + t_ * 2 + i % 2] = running.o[c][i];
      }
      if (warp_ == 0 && t_ == 0 && i % 2 == 0) {
        part[0] = i < 2 ? running.m0 : running.m8;
        part[1] = i < 2 ? running.l0 : running.l8;
      }
    }
  }

 private:
  struct Shared {
    float max[kWarps][16];  // of each warp's keys
    float sum[kWarps][16];
  };
  __device__ static Shared& shared() {
    __shared__ Shared sums;
    return sums;
  }

  // Keys and values `from` …, one look at the block table for both; those behind `end` become zero.
  // What is there at `end` itself, the row's own, comes later.
  __device__ void copy(int from, int count, int end) {
    constexpr int kPieces = Dim / 8;
    const int kv_head = static_cast<int>(blockIdx.y);
#pragma unroll 2
    for (int i = static_cast<int>(threadIdx.x); i < count * kPieces; i += kDecodeThreads) {
      const int key = from + i / kPieces;
      const int column = i % kPieces * 8;
      const int to = (key - first_) * Shape::kRowStride + column;
      if (key < end) {
        const std::int64_t at = cache_at<Dim>(args_, sequence_, kv_head, key) + column;
        Rows::copy8(keys_ + to, args_.keys, at);
        Rows::copy8(values_ + to, args_.values, at);
      } else if (key > end) {
        *reinterpret_cast<uint4*>(keys_ + to) = make_uint4(0, 0, 0, 0);
        *reinterpret_cast<uint4*>(values_ + to) = make_uint4(0, 0, 0, 0);
      }
    }
  }
  __device__ void copy_own() {
    static_assert(Dim / 8 <= kDecodeThreads);
    if (const int column = static_cast<int>(threadIdx.x) * 8; own_at_ >= 0 && column < Dim) {
      const int to = (position - first_) * Shape::kRowStride + column;
      Rows::copy8(keys_ + to, args_.keys, own_at_ + column);
      Rows::copy8(values_ + to, args_.values, own_at_ + column);
    }
    copy_async_commit();
  }

  // Weights against the maximum of all tiles up to the warp's own.
  __device__ void leave_weights(Part& s, Shared& sums) {
    float max0 = -INFINITY;
    float max8 = -INFINITY;
#pragma unroll 1
    for (int i = 0; i <= warp_ / 2 * 2 + 1; ++i) {
      max0 = fmaxf(max0, sums.max[i][g_]);
      max8 = fmaxf(max8, sums.max[i][g_ + 8]);
    }
    float sum0 = 0;
    float sum8 = 0;
    weigh(s, max0, max8, sum0, sum8);
    if (t_ == 0) {
      sums.sum[warp_][g_] = sum0;
      sums.sum[warp_][g_ + 8] = sum8;
    }
#pragma unroll
    for (int n = 0; n < kPartBlocks; ++n) {
      const int at = warp_ * 32 + n * 8 + t_ * 2;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const WeightPair pair = WeightPair::of(s[n][2 * r], s[n][2 * r + 1]);
        const int to = (g_ + r * 8) * Shape::kWeightStride + at;
        *reinterpret_cast<std::uint32_t*>(weights_ + to) = pair.high;
        *reinterpret_cast<std::uint32_t*>(rest_ + to) = pair.low;
      }
    }
  }

  const Attend& args_;

 public:
  std::int64_t row;
  int position;
  bool present;  // the split holds keys that the row sees
  int first_split;
  int last_split;

 private:
  int sequence_;
  Seen seen_;
  int first_;
  int count_ = 0;             // keys, in whole tiles
  std::int64_t own_at_ = -1;  // the row's own key and value, where they are in this split
  __half* keys_;
  __half* values_;
  __half* weights_;
  __half* rest_;
  int warp_;
  int g_;
  int t_;
};

// The blocks of a cluster are the splits of a row and key head; each merges some columns of all.
template <int Dim, class Rows>
__device__ void merge_cluster(const Attend& args, const DecodeSplit<Dim, Rows>& split,
                              const float* parts) {
  const int first_column = static_cast<int>(blockIdx.y) * args.group * Dim;
  cluster_sync();
#pragma unroll 1
  for (int i = static_cast<int>(blockIdx.x * kDecodeThreads + threadIdx.x); i < args.group * Dim;
       i += static_cast<int>(gridDim.x) * kDecodeThreads) {
    const float* part = parts + i / Dim * DecodeShape<Dim>::kPart;
    float m = -INFINITY;
    float l = 0;
    float value = 0;
#pragma unroll 1
    for (int s = split.first_split; s <= split.last_split; ++s) {
      const float2 factors = merge_factors(m, load_remote(part, s));
      l = merge(l, load_remote(part + 1, s), factors);
      value = merge(value, load_remote(part + 2 + i % Dim, s), factors);
    }
    store_attended(args, split.row, first_column + i, __fdiv_rn(value, l));
  }
  cluster_sync();  // nobody leaves while others read its memory
}

// The last block to arrive merges from memory: factors first, a thread per head, then columns.
template <int Dim, class Rows>
__device__ void merge_memory(const Attend& args, const DecodeSplit<Dim, Rows>& split,
                             const float* parts, int* ticket, float* shared) {
  constexpr int kPart = DecodeShape<Dim>::kPart;
  const int splits = split.last_split - split.first_split + 1;
  __shared__ int arrived;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(ticket, 1);
  __syncthreads();
  if (arrived != splits - 1) return;
  __threadfence();
  if (threadIdx.x == 0) *ticket = 0;
  parts += static_cast<std::int64_t>(split.first_split) * args.group * kPart;
  auto* factors = reinterpret_cast<float2*>(shared);  // (group, splits)
  float* sums = shared + 2 * args.group * splits;
  for (int i = static_cast<int>(threadIdx.x); i < args.group * splits; i += kDecodeThreads) {
    const float* part =
        parts + (i % splits * args.group + i / splits) * static_cast<std::int64_t>(kPart);
    factors[i] = make_float2(__ldcg(part), __ldcg(part + 1));
  }
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < args.group) {
    float2* mine = factors + static_cast<int>(threadIdx.x) * splits;
    float m = -INFINITY;
    float l = 0;
    for (int s = 0; s < splits; ++s) {
      const float sum = mine[s].y;
      mine[s] = merge_factors(m, mine[s].x);
      l = merge(l, sum, mine[s]);
    }
    sums[threadIdx.x] = l;
  }
  __syncthreads();
  const int first_column = static_cast<int>(blockIdx.y) * args.group * Dim;
  for (int i = static_cast<int>(threadIdx.x); i < args.group * Dim; i += kDecodeThreads) {
    const float* part = parts + i / Dim * kPart + 2 + i % Dim;
    float value = 0;
#pragma unroll 8
    for (int s = 0; s < splits; ++s)
      value = merge(value, __ldcg(part + s * static_cast<std::int64_t>(args.group * kPart)),
                    factors[i / Dim * splits + s]);
    store_attended(args, split.row, first_column + i, __fdiv_rn(value, sums[i / Dim]));
  }
}

// Who merges the splits of a row: nobody, as there is one; the blocks of a cluster; the last block.
enum class Merge { None, Cluster, Memory };

template <int Dim, class Rows, Merge Merges>
__global__ void __launch_bounds__(kDecodeThreads)
    decode_attention(const __grid_constant__ Attend args, std::int64_t first_row,
                     SplitWorkspace work) {
  extern __shared__ __align__(128) unsigned char memory[];
  DecodeSplit<Dim, Rows> split(args, first_row, memory);
  split.copy_earlier();
  touch(args);
  after_previous();
  if (Merges != Merge::Cluster && !split.present) return;
  typename DecodeSplit<Dim, Rows>::Sums running;
  split.score();
  split.add(running);
  if constexpr (Merges == Merge::None) {
    split.store(running);
  } else if constexpr (Merges == Merge::Cluster) {
    auto* parts = reinterpret_cast<float*>(memory);
    __syncthreads();  // keys make room
    split.leave(running, parts);
    merge_cluster(args, split, parts);
  } else {
    const std::int64_t unit =
        static_cast<std::int64_t>(blockIdx.z) * args.cache.kv_heads + blockIdx.y;
    const int part_size = args.group * DecodeShape<Dim>::kPart;
    float* parts = work.parts + unit * gridDim.x * part_size;
    split.leave(running, parts + static_cast<std::int64_t>(blockIdx.x) * part_size);
    merge_memory(args, split, parts, work.tickets + unit, reinterpret_cast<float*>(memory));
  }
}

// Rows that the workspace has room for at once.
std::int64_t rows_at_once(const Attend& args, std::int64_t part_floats, int splits,
                          const SplitWorkspace& workspace) {
  const std::int64_t of_row = args.heads * splits * part_floats;
  const std::int64_t rows =
      std::min(workspace.floats / of_row, workspace.num_tickets / args.cache.kv_heads);
  CHECK(rows > 0, "attention over more keys than reserve was told of");
  return rows;
}

}  // namespace

void launch_decode_attention(const Attend& args, std::int64_t first_row, std::int64_t rows,
                             int splits, const SplitWorkspace& workspace, const Queue& queue) {
  with_heads(args, [&](auto head_dim, auto kept) {
    constexpr int kDim = decltype(head_dim)::value;
    using Rows = decltype(kept);
    using Shape = DecodeShape<kDim>;
    const bool is_clustered = workspace.has_clusters && splits > 1 && splits <= kClusterMax;
    constexpr std::int64_t kGridMax = 65535;
    const std::int64_t at_once =
        is_clustered || splits == 1
            ? kGridMax
            : std::min(kGridMax, rows_at_once(args, Shape::kPart, splits, workspace));
    const auto merge_bytes =
        static_cast<std::size_t>(args.group * (splits * 2 + 1)) * sizeof(float);
    const std::size_t shared =
        std::max<std::size_t>(Shape::kShared, is_clustered ? 0 : merge_bytes);
    for (std::int64_t done = 0; done < rows; done += at_once) {
      const LaunchShape shape{
          .blocks = dim3(static_cast<unsigned>(splits), static_cast<unsigned>(args.cache.kv_heads),
                         static_cast<unsigned>(std::min(at_once, rows - done))),
          .threads = kDecodeThreads,
          .shared_bytes = shared,
          .cluster = is_clustered ? static_cast<unsigned>(splits) : 1};
      const auto kernel = splits == 1    ? decode_attention<kDim, Rows, Merge::None>
                          : is_clustered ? decode_attention<kDim, Rows, Merge::Cluster>
                                         : decode_attention<kDim, Rows, Merge::Memory>;
      launch_shaped("decode attention", kernel, queue, shape, args, first_row + done, workspace);
    }
  });
}

}  // namespace llorch::compute::cuda
