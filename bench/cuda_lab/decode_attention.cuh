// Attention of one row per sequence: a block for a row, a key head and a split of its keys.
#pragma once

#include "attention.cuh"

namespace lab {

inline constexpr int kDecodeThreads = 128;
inline constexpr int kClusterMax = 8;

template <int Dim>
struct DecodeShape {
  static constexpr int kKeyStride = Dim + 8;
  static constexpr int kValueStride = Dim + 8;
  static constexpr int kWeightStride = kSplitKeys + 8;
  static constexpr int kShared =
      (kSplitKeys * (kKeyStride + kValueStride) + 16 * kWeightStride) * 2;
  static constexpr int kPart = Dim + 2;  // of a head: maximum, sum, values
};

// Where splits leave their sums when the blocks of a row are no cluster.
struct Workspace {
  float* parts;  // (rows, kv_heads, splits, group, kPart)
  int* tickets;  // (rows, kv_heads), zero between calls
  int splits;    // at most, in this launch
};

// One block's split. Warps share the keys while scoring and the columns while adding values.
template <int Dim>
class DecodeSplit {
 public:
  using Shape = DecodeShape<Dim>;
  static constexpr int kColumns = Dim / 4;  // of one warp

  __device__ DecodeSplit(const Attend& args, unsigned char* memory)
      : args_(args),
        position(args.positions[blockIdx.z]),
        first_(blockIdx.x * kSplitKeys),
        keys_(reinterpret_cast<__half*>(memory)),
        values_(keys_ + kSplitKeys * Shape::kKeyStride),
        weights_(values_ + kSplitKeys * Shape::kValueStride),
        warp_(threadIdx.x / 32),
        g_(threadIdx.x % 32 / 4),
        t_(threadIdx.x % 4) {
    present = first_ <= position;
    count_ = present ? min(kSplitKeys, (position - first_) / kKeyTile * kKeyTile + kKeyTile) : 0;
    row_at = (static_cast<std::int64_t>(blockIdx.z) * args.cache.kv_heads + blockIdx.y) *
             args.group * Dim;
  }

  // Earlier positions' keys and values: complete before the kernel that computes this one's began.
  __device__ void copy_earlier() {
    if (present) copy(first_, count_, position);
  }
  __device__ void copy_own() {
    __syncthreads();  // its row was zero until now
    if (present && position - first_ < kSplitKeys) copy(position, 1, position + 1);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
  }

  __device__ void score() {
    std::uint32_t q[Dim / 16][4];
    load_queries<Dim>(q, args_.q + row_at + min(g_, args_.group - 1) * Dim + t_ * 8,
                      args_.q + row_at + min(g_ + 8, args_.group - 1) * Dim + t_ * 8);
    copy_own();
    Part s;
    float max0 = -INFINITY;
    float max8 = -INFINITY;
    const bool busy = warp_ * 32 < count_;
    if (busy) {
#pragma unroll
      for (int n = 0; n < kPartBlocks; ++n)
        score8<Dim>(s[n], q, [&](int chunk) {
          return *reinterpret_cast<const uint4*>(
              keys_ + (warp_ * 32 + n * 8 + g_) * Shape::kKeyStride + t_ * 8 + chunk * 32);
        });
      mask(s, first_ + warp_ * 32, args_.scale, position, position, max0, max8);
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

  __device__ void add(Running<kColumns / 8>& running) {
    const auto& sums = shared();
    for (int i = 0; i * kKeyTile < count_; ++i) {
      const auto pair = [&](const float(&of)[4][16], int row, float(&to)[2]) {
        to[0] = of[2 * i][row];
        to[1] = of[2 * i + 1][row];
      };
      float max0[2], max8[2], sum0[2], sum8[2];
      pair(sums.max, g_, max0);
      pair(sums.max, g_ + 8, max8);
      pair(sums.sum, g_, sum0);
      pair(sums.sum, g_ + 8, sum8);
      running.step(running.raise(fmaxf(max0[0], max0[1]), fmaxf(max8[0], max8[1])), sum0, sum8);
#pragma unroll
      for (int k = 0; k < kKeyTile; k += 16) {
        const __half* at = weights_ + i * kKeyTile + k + t_ * 2;
        const auto word = [&](int r, int c) {
          return *reinterpret_cast<const std::uint32_t*>(at + r * Shape::kWeightStride + c);
        };
        const std::uint32_t p[4] = {word(g_, 0), word(g_ + 8, 0), word(g_, 8), word(g_ + 8, 8)};
#pragma unroll
        for (int c = 0; c < kColumns; c += 16)
          add_values<Shape::kValueStride>(running.o[c / 8], running.o[c / 8 + 1], p, values_,
                                          i * kKeyTile + k, warp_ * kColumns + c);
      }
    }
  }

  // The split's sums as (group, kPart).
  __device__ void leave(const Running<kColumns / 8>& running, float* parts) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int head = i < 2 ? g_ : g_ + 8;
      if (head >= args_.group) continue;
      float* part = parts + head * Shape::kPart;
#pragma unroll
      for (int c = 0; c < kColumns / 8; ++c)
        part[2 + warp_ * kColumns + c * 8 + t_ * 2 + i % 2] = running.o[c][i];
      if (warp_ == 0 && t_ == 0 && i % 2 == 0) {
        part[0] = i < 2 ? running.m0 : running.m8;
        part[1] = i < 2 ? running.l0 : running.l8;
      }
    }
  }

 private:
  struct Sums {
    float max[4][16];  // of each warp's keys
    float sum[4][16];
  };
  __device__ static Sums& shared() {
    __shared__ Sums sums;
    return sums;
  }

  __device__ void copy(int from, int count, int end) {
    const int sequence = args_.sequences[blockIdx.z];
    copy_rows<Dim, Shape::kKeyStride, kDecodeThreads>(keys_ + (from - first_) * Shape::kKeyStride,
                                                      args_.cache.keys, args_.cache, sequence,
                                                      blockIdx.y, from, count, end);
    copy_rows<Dim, Shape::kValueStride, kDecodeThreads>(
        values_ + (from - first_) * Shape::kValueStride, args_.cache.values, args_.cache, sequence,
        blockIdx.y, from, count, end);
  }

  // Weights against the maximum of all tiles up to the warp's own.
  __device__ void leave_weights(Part& s, Sums& sums) {
    float max0 = -INFINITY;
    float max8 = -INFINITY;
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
      __half* at = weights_ + warp_ * 32 + n * 8 + t_ * 2;
      *reinterpret_cast<std::uint32_t*>(at + g_ * Shape::kWeightStride) =
          two_halves(s[n][0], s[n][1]);
      *reinterpret_cast<std::uint32_t*>(at + (g_ + 8) * Shape::kWeightStride) =
          two_halves(s[n][2], s[n][3]);
    }
  }

  const Attend& args_;

 public:
  int position;
  bool present;         // the split holds keys at all
  std::int64_t row_at;  // of the group's first head, in q and out

 private:
  int first_;
  int count_ = 0;  // keys, in whole tiles
  __half* keys_;
  __half* values_;
  __half* weights_;
  int warp_;
  int g_;
  int t_;
};

// The blocks of a cluster are the splits of a row and key head; each merges some columns of all.
template <int Dim>
__device__ void merge_cluster(const Attend& args, const float* parts, int splits,
                              std::int64_t row_at) {
  cluster_sync<kClusterMax>();
  for (int i = blockIdx.x * kDecodeThreads + threadIdx.x; i < args.group * Dim;
       i += gridDim.x * kDecodeThreads) {
    const float* part = parts + i / Dim * DecodeShape<Dim>::kPart;
    float m = -INFINITY;
    float l = 0;
    float value = 0;
#pragma unroll
    for (int s = 0; s < kClusterMax; ++s) {
      if (s >= splits) break;
      const float2 factors = merge_factors(m, load_remote(part, s));
      l = merge(l, load_remote(part + 1, s), factors);
      value = merge(value, load_remote(part + 2 + i % Dim, s), factors);
    }
    store_attended(args, row_at + i, __fdiv_rn(value, l));
  }
  cluster_sync<kClusterMax>();  // nobody leaves while others read its memory
}

// The last block to arrive merges from memory: factors first, a thread per head, then columns.
template <int Dim>
__device__ void merge_memory(const Attend& args, const float* parts, int splits, int* ticket,
                             float* shared, std::int64_t row_at) {
  constexpr int kPart = DecodeShape<Dim>::kPart;
  __shared__ int arrived;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrived = atomicAdd(ticket, 1);
  __syncthreads();
  if (arrived != splits - 1) return;
  __threadfence();
  if (threadIdx.x == 0) *ticket = 0;
  auto* factors = reinterpret_cast<float2*>(shared);  // (group, splits)
  float* sums = shared + 2 * args.group * splits;
  for (int i = threadIdx.x; i < args.group * splits; i += kDecodeThreads) {
    const float* part =
        parts + (i % splits * args.group + i / splits) * static_cast<std::int64_t>(kPart);
    factors[i] = make_float2(__ldcg(part), __ldcg(part + 1));
  }
  __syncthreads();
  if (threadIdx.x < args.group) {
    float2* mine = factors + threadIdx.x * splits;
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
  for (int i = threadIdx.x; i < args.group * Dim; i += kDecodeThreads) {
    const float* part = parts + i / Dim * kPart + 2 + i % Dim;
    float value = 0;
#pragma unroll 8
    for (int s = 0; s < splits; ++s)
      value = merge(value, __ldcg(part + s * static_cast<std::int64_t>(args.group * kPart)),
                    factors[i / Dim * splits + s]);
    store_attended(args, row_at + i, __fdiv_rn(value, sums[i / Dim]));
  }
}

template <int Dim, bool Clustered>
__global__ void __launch_bounds__(kDecodeThreads) decode_attention(Attend args, Workspace work) {
  extern __shared__ __align__(128) unsigned char memory[];
  DecodeSplit<Dim> split(args, memory);
  split.copy_earlier();
  wait_for_previous();
  release_next();
  if (!Clustered && !split.present) return;
  Running<DecodeSplit<Dim>::kColumns / 8> running;
  split.score();
  split.add(running);
  const int splits = split.position / kSplitKeys + 1;
  if constexpr (Clustered) {
    auto* parts = reinterpret_cast<float*>(memory);
    __syncthreads();  // keys make room
    split.leave(running, parts);
    merge_cluster<Dim>(args, parts, splits, split.row_at);
  } else {
    const std::int64_t unit =
        static_cast<std::int64_t>(blockIdx.z) * args.cache.kv_heads + blockIdx.y;
    const int part_size = args.group * DecodeShape<Dim>::kPart;
    float* parts = work.parts + unit * work.splits * part_size;
    split.leave(running, parts + static_cast<std::int64_t>(blockIdx.x) * part_size);
    merge_memory<Dim>(args, parts, splits, work.tickets + unit, reinterpret_cast<float*>(memory),
                      split.row_at);
  }
}

template <int Dim>
void run_decode(const Attend& args, const Workspace& work, int rows, cudaStream_t stream,
                bool dependent) {
  const bool clustered = work.splits <= kClusterMax;
  const auto kernel = clustered ? decode_attention<Dim, true> : decode_attention<Dim, false>;
  LAB_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 DecodeShape<Dim>::kShared));
  launch_clusters(kernel, dim3(work.splits, args.cache.kv_heads, rows), clustered ? work.splits : 1,
                  kDecodeThreads, DecodeShape<Dim>::kShared, stream, dependent, args, work);
}

}  // namespace lab
