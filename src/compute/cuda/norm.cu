// Layer norm, RMS norm, softmax and argmax: one block per row, which passes over it up to three
// times.
#include <algorithm>

#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/logit_rank.cuh"
#include "compute/cuda/reduce.cuh"
#include "compute/cuda/row_norm.cuh"

namespace llorch::compute::cuda {
namespace {

// Where a thread writes values, it alone reads them after the last reduction, so out may be x.
struct Rows {
  const float* x;
  std::int64_t x_stride;
  float* out;
  std::int64_t out_stride;
  std::int64_t dim;
  const std::int32_t* picks;  // rows of x, or null: all in order
  std::int64_t x_rows;

  // What a block of row `row` norms.
  __device__ const float* at(std::int64_t row) const {
    if (picks != nullptr) {
      row = picks[row];
      require(row >= 0 && row < x_rows);
    }
    return x + row * x_stride;
  }
};

Rows rows_of(const TensorView& x, const TensorView& out, const std::int32_t* picks = nullptr) {
  return {.x = static_cast<const float*>(x.data),
          .x_stride = x.row_stride,
          .out = static_cast<float*>(out.data),
          .out_stride = out.row_stride,
          .dim = x.dims[1],
          .picks = picks,
          .x_rows = x.rows()};
}

__global__ void layer_norm_kernel(Rows rows, const float* weight, const float* bias, float epsilon,
                                  RoundedRows rounded) {
  after_previous();
  const float* x = rows.at(blockIdx.x);
  float* out = rows.out + blockIdx.x * rows.out_stride;
  const auto dim = static_cast<float>(rows.dim);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) sum += x[i];
  const float mean = block_sum<kBlockThreads>(sum) / dim;
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) {
    const float centred = x[i] - mean;
    squares = fmaf(centred, centred, squares);
  }
  const float variance = block_sum<kBlockThreads>(squares) / dim;
  const float root = sqrtf(variance + epsilon);
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) {
    const float value = fmaf((x[i] - mean) / root, weight[i], bias != nullptr ? bias[i] : 0.0F);
    out[i] = value;
    if (rounded.data != nullptr)
      rounded.put(static_cast<int>(blockIdx.x), static_cast<int>(i), value);
  }
}

// Up to Hold · 1,024 values stay in registers between the two passes; 0: they are read twice. The
// blocks of a row each have the sum of all of it, in the one order, and take turns at what is
// stored.
template <int Hold>
__global__ void rms_norm_kernel(Rows rows, const float* weight, float epsilon, bool accumulate,
                                RoundedRows rounded) {
  const auto dim = static_cast<int>(rows.dim);
  const auto is_mine = [&](int h) { return h % gridDim.y == blockIdx.y && norm_place(h) < dim; };
  // Gains are weights: there before any kernel.
  float4 gains[Hold > 0 ? Hold : 1];
#pragma unroll
  for (int h = 0; h < Hold; ++h) {
    if (is_mine(h)) gains[h] = load_norm(weight, norm_place(h), dim);
  }
  touch(rows);
  after_previous();
  const float* x = rows.at(blockIdx.x);
  float* out = rows.out + blockIdx.x * rows.out_stride;
  const auto store = [&](int i, const float4& four, const Root& root, const float4& gain) {
    const float4 normed = norm_four(four, root, gain);
    const float values[4] = {normed.x, normed.y, normed.z, normed.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (i + j >= dim) break;
      out[i + j] = accumulate ? out[i + j] + values[j] : values[j];
      if (rounded.data != nullptr) rounded.put(static_cast<int>(blockIdx.x), i + j, values[j]);
    }
  };
  float squares = 0;
  if constexpr (Hold > 0) {
    float4 held[Hold];
#pragma unroll
    for (int h = 0; h < Hold; ++h) held[h] = load_norm(x, norm_place(h), dim);
#pragma unroll
    for (int h = 0; h < Hold; ++h) squares = add_squares(squares, held[h]);
    const Root root(rms_root(squares, dim, epsilon));
#pragma unroll
    for (int h = 0; h < Hold; ++h) {
      if (is_mine(h)) store(norm_place(h), held[h], root, gains[h]);
    }
  } else {
    for (int i = norm_place(0); i < dim; i += kNormStep)
      squares = add_squares(squares, load_norm(x, i, dim));
    const Root root(rms_root(squares, dim, epsilon));
    for (int i = norm_place(0); i < dim; i += kNormStep)
      store(i, load_norm(x, i, dim), root, load_norm(weight, i, dim));
  }
}

// A warp per head of a row.
__global__ void head_norm_kernel(Rows rows, std::int64_t heads, std::int64_t num_rows,
                                 const float* weight, float epsilon, bool accumulate) {
  after_previous();
  const std::int64_t index = global_thread() / kWarpThreads;
  if (index >= num_rows * heads) return;
  const float* x = rows.x + index / heads * rows.x_stride + index % heads * rows.dim;
  float* out = rows.out + index / heads * rows.out_stride + index % heads * rows.dim;
  const float root = head_root(x, rows.dim, epsilon);
  for (std::int64_t i = threadIdx.x % kWarpThreads; i < rows.dim; i += kWarpThreads) {
    const float value = x[i] / root * weight[i];
    out[i] = accumulate ? out[i] + value : value;
  }
}

__global__ void softmax_kernel(Rows rows) {
  after_previous();
  const float* x = rows.x + blockIdx.x * rows.x_stride;
  float* out = rows.out + blockIdx.x * rows.out_stride;
  float largest = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) {
    largest = fmaxf(largest, x[i]);
  }
  largest = block_max<kBlockThreads>(largest);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) sum += expf(x[i] - largest);
  sum = block_sum<kBlockThreads>(sum);
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) {
    out[i] = expf(x[i] - largest) / sum;
  }
}

// Blocks along x share a row; the last of them to arrive says what they found.
__global__ void argmax_kernel(Rows rows, std::int32_t* out, unsigned long long* best,
                              int* tickets) {
  after_previous();
  const float* x = rows.x + blockIdx.y * rows.x_stride;
  unsigned long long mine = 0;
  for (std::int64_t i = global_thread(); i < rows.dim;
       i += static_cast<std::int64_t>(gridDim.x) * kBlockThreads) {
    const unsigned long long found = rank_of(x[i], i);
    mine = found > mine ? found : mine;
  }
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    const unsigned long long other = __shfl_xor_sync(0xFFFFFFFFU, mine, step);
    mine = other > mine ? other : mine;
  }
  if (threadIdx.x % kWarpThreads == 0) atomicMax(best + blockIdx.y, mine);
  __threadfence();
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (atomicAdd(tickets + blockIdx.y, 1) != static_cast<int>(gridDim.x) - 1) return;
  __threadfence();
  const unsigned long long top = atomicExch(best + blockIdx.y, 0ULL);
  tickets[blockIdx.y] = 0;
  out[blockIdx.y] = is_token(top) ? place_of(top) : -1;
}

}  // namespace

void launch_layer_norm(const LayerNormArgs& args, const RoundedTarget& rounded, const Queue& queue,
                       const std::int32_t* picks) {
  launch("layer_norm", layer_norm_kernel, queue, args.out.rows(), 1, kBlockThreads,
         rows_of(args.x, args.out, picks), static_cast<const float*>(args.weight.data),
         static_cast<const float*>(args.bias.data), args.epsilon, RoundedRows{rounded});
}

void launch_rms_norm(const RmsNormArgs& args, const RoundedTarget& rounded, const Queue& queue,
                     const std::int32_t* picks) {
  Rows rows = rows_of(args.x, args.out, picks);
  rows.dim = args.x.dims[args.x.rank - 1];
  const auto* weight = static_cast<const float*>(args.weight.data);
  if (args.x.rank == 2) {
    CHECK(rows.dim <= INT32_MAX - kNormStep);
    const int hold = rows.dim <= kNormStep ? 1 : rows.dim <= 4 * kNormStep ? 4 : 0;
    const auto kernel = hold == 1   ? rms_norm_kernel<1>
                        : hold == 4 ? rms_norm_kernel<4>
                                    : rms_norm_kernel<0>;
    // Few rows leave most of the device idle. In place, a row's blocks would read what others
    // wrote.
    const bool is_shared = args.out.rows() <= kNarrowRows && args.x.data != args.out.data;
    return launch("rms_norm", kernel, queue, args.out.rows(), is_shared ? std::max(1, hold) : 1,
                  kNormThreads, rows, weight, args.epsilon, args.accumulate, RoundedRows{rounded});
  }
  const std::int64_t heads = args.x.dims[1];
  launch("head_norm", head_norm_kernel, queue,
         ceil_div(args.x.rows() * heads * kWarpThreads, kBlockThreads), 1, kBlockThreads, rows,
         heads, args.x.rows(), weight, args.epsilon, args.accumulate);
}

void launch_norm_of_picked(const LogitsArgs& args, const RoundedTarget& rounded,
                           const Queue& queue) {
  const auto* picks = static_cast<const std::int32_t*>(args.indices.data);
  const RowNorm& norm = args.norm;
  if (norm.kind == NormKind::LayerNorm) {
    return launch_layer_norm({.x = args.x,
                              .weight = norm.weight,
                              .bias = norm.bias,
                              .epsilon = norm.epsilon,
                              .out = args.picked},
                             rounded, queue, picks);
  }
  launch_rms_norm({.x = args.x, .weight = norm.weight, .epsilon = norm.epsilon, .out = args.picked},
                  rounded, queue, picks);
}

void launch_softmax(const SoftmaxArgs& args, const Queue& queue) {
  launch("softmax", softmax_kernel, queue, args.x.rows(), 1, kBlockThreads,
         rows_of(args.x, args.out));
}

void launch_argmax(const ArgmaxArgs& args, unsigned long long* best, int* tickets,
                   const Queue& queue) {
  constexpr std::int64_t kBlocksMax = 64;
  const std::int64_t blocks =
      std::min(kBlocksMax, ceil_div(args.x.dims[1], std::int64_t{4} * kBlockThreads));
  launch("argmax", argmax_kernel, queue, blocks, args.x.rows(), kBlockThreads,
         rows_of(args.x, args.x), static_cast<std::int32_t*>(args.out.data), best, tickets);
}

cudaError_t probe_kernels() {
  cudaFuncAttributes ignored{};
  return cudaFuncGetAttributes(&ignored, reinterpret_cast<const void*>(rms_norm_kernel<0>));
}

TensorCores find_tensor_cores() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(rms_norm_kernel<0>)) !=
      cudaSuccess)
    return {};
  constexpr int kAmpere = 80;
  constexpr int kHopper = 90;
  int device = 0;
  int shared_bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) !=
          cudaSuccess)
    return {};
  return {.mma = attributes.ptxVersion >= kAmpere,
          .wgmma = attributes.ptxVersion == kHopper,
          .shared_bytes = shared_bytes};
}

}  // namespace llorch::compute::cuda
