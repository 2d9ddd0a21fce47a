// Matrix products with weights that stay as the file stores them: decoded value by value, summed in
// float32.
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/quant.cuh"
#include "compute/cuda/reduce.cuh"

namespace llorch::compute::cuda {
namespace {

// Rows that share one decoding of a weight. Each has its own sum, so a row's result does not know
// them.
constexpr int kTileRows = 8;
constexpr int kBlockWarps = kBlockThreads / kWarpThreads;

struct Product {
  const float* x;  // (rows, cols)
  std::int64_t x_stride;
  const std::uint8_t* weight;  // (outputs, cols)
  std::int64_t weight_stride;  // bytes
  const float* bias;           // (outputs), or null
  float* out;                  // (rows, outputs)
  std::int64_t out_stride;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t outputs;
  bool accumulate;
};

// One warp per output and tile of rows. Lane l sums columns l, l + 32, …; then the lanes are
// summed.
template <class Decoder>
__global__ void linear_kernel(Product args) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const std::int64_t output =
      static_cast<std::int64_t>(blockIdx.x) * kBlockWarps + threadIdx.x / kWarpThreads;
  if (output >= args.outputs) return;  // The whole warp leaves.
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTileRows;
  const std::uint8_t* weight = args.weight + output * args.weight_stride;
  const float* x = args.x + first_row * args.x_stride;
  float sums[kTileRows] = {};
  for (std::int64_t col = lane; col < args.cols; col += kWarpThreads) {
    const std::uint8_t* block = weight + col / Decoder::kElems * Decoder::kBytes;
    const float value = Decoder::at(block, static_cast<int>(col % Decoder::kElems));
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      if (first_row + r < args.rows) sums[r] = fmaf(x[r * args.x_stride + col], value, sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    if (first_row + r >= args.rows) break;
    float sum = warp_sum(sums[r]);
    if (lane != 0) continue;
    if (args.bias != nullptr) sum += args.bias[output];
    float& out = args.out[(first_row + r) * args.out_stride + output];
    out = args.accumulate ? out + sum : sum;
  }
}

}  // namespace

void launch_linear(const LinearTarget& target, const TensorView& x, cudaStream_t stream) {
  const Weight& weight = *target.weight;
  const tensor::DTypeInfo& type = tensor::info(weight.dtype);
  const Product product{
      .x = static_cast<const float*>(x.data),
      .x_stride = x.row_stride,
      .weight = static_cast<const std::uint8_t*>(weight.data),
      .weight_stride = weight.cols / type.block_elems * type.block_bytes,
      .bias = static_cast<const float*>(target.bias.data),
      .out = static_cast<float*>(target.out.data),
      .out_stride = target.out.row_stride,
      .rows = x.rows(),
      .cols = weight.cols,
      .outputs = weight.rows,
      .accumulate = target.accumulate,
  };
  const bool known = with_decoder(weight.dtype, [&](auto decoder) {
    launch("linear", linear_kernel<decltype(decoder)>, stream,
           ceil_div(product.outputs, kBlockWarps), ceil_div(product.rows, kTileRows), kBlockThreads,
           product);
  });
  CHECK(known, "load_weight accepted a type without a kernel");
}

}  // namespace llorch::compute::cuda
