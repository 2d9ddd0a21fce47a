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
// Columns that a lane takes at a time: 16 bytes of halves.
constexpr int kLaneCols = 8;

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

// Types whose eight values are one load.
template <class Decoder>
constexpr bool kLoadedAtOnce = Decoder::kElems == 1 && Decoder::kBytes == 2;

// Eight values that begin at a multiple of eight, which every block size is.
template <class Decoder, bool kAligned>
__device__ void decode(const std::uint8_t* weight, std::int64_t col, float (&values)[kLaneCols]) {
  const std::uint8_t* block = weight + col / Decoder::kElems * Decoder::kBytes;
  if constexpr (kAligned && kLoadedAtOnce<Decoder>) {
    const uint4 words = __ldcs(reinterpret_cast<const uint4*>(block));
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&words);
#pragma unroll
    for (int i = 0; i < kLaneCols; ++i) values[i] = Decoder::at(bytes + 2 * i, 0);
  } else {
    const int first = static_cast<int>(col % Decoder::kElems);
#pragma unroll
    for (int i = 0; i < kLaneCols; ++i) {
      values[i] = Decoder::kElems == 1 ? Decoder::at(block + i * Decoder::kBytes, 0)
                                       : Decoder::at(block, first + i);
    }
  }
}

template <bool kAligned>
__device__ void load_inputs(const float* x, float (&inputs)[kLaneCols]) {
  if constexpr (kAligned) {
    const float4 low = *reinterpret_cast<const float4*>(x);
    const float4 high = *reinterpret_cast<const float4*>(x + 4);
    const float all[kLaneCols] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < kLaneCols; ++i) inputs[i] = all[i];
  } else {
#pragma unroll
    for (int i = 0; i < kLaneCols; ++i) inputs[i] = x[i];
  }
}

// One warp per output and tile of kRows rows. Lane l sums columns 8l .. 8l + 7, then those 256
// further, and so on; then the lanes are summed. kAligned says how values are loaded: the order of
// sums knows neither it nor kRows.
template <class Decoder, int kRows, bool kAligned>
__global__ void linear_kernel(Product args) {
  after_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const std::int64_t output =
      static_cast<std::int64_t>(blockIdx.x) * kBlockWarps + threadIdx.x / kWarpThreads;
  if (output >= args.outputs) return;  // The whole warp leaves.
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kRows;
  const std::uint8_t* weight = args.weight + output * args.weight_stride;
  const float* x = args.x + first_row * args.x_stride;
  float sums[kRows] = {};
  std::int64_t col = static_cast<std::int64_t>(lane) * kLaneCols;
#pragma unroll 4
  for (; col + kLaneCols <= args.cols; col += kWarpThreads * kLaneCols) {
    float values[kLaneCols];
    decode<Decoder, kAligned>(weight, col, values);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (kRows > 1 && first_row + r >= args.rows) break;
      float inputs[kLaneCols];
      load_inputs<kAligned>(x + r * args.x_stride + col, inputs);
#pragma unroll
      for (int i = 0; i < kLaneCols; ++i) sums[r] = fmaf(inputs[i], values[i], sums[r]);
    }
  }
  // What is left when the columns are no multiple of eight: one lane's, and of unblocked types.
  for (; col < args.cols; ++col) {
    const float value = Decoder::at(weight + col / Decoder::kElems * Decoder::kBytes,
                                    static_cast<int>(col % Decoder::kElems));
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first_row + r < args.rows) sums[r] = fmaf(x[r * args.x_stride + col], value, sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (first_row + r >= args.rows) break;
    float sum = warp_sum(sums[r]);
    if (lane != 0) continue;
    if (args.bias != nullptr) sum += args.bias[output];
    float& out = args.out[(first_row + r) * args.out_stride + output];
    out = args.accumulate ? out + sum : sum;
  }
}

template <class Decoder, bool kAligned>
void launch_rows(const Product& product, const Queue& queue) {
  const std::int64_t blocks = ceil_div(product.outputs, kBlockWarps);
  if (product.rows == 1) {
    launch("linear", linear_kernel<Decoder, 1, kAligned>, queue, blocks, 1, kBlockThreads, product);
  } else {
    launch("linear", linear_kernel<Decoder, kTileRows, kAligned>, queue, blocks,
           ceil_div(product.rows, kTileRows), kBlockThreads, product);
  }
}

// Whether input rows, and weight rows where they are loaded so, begin at multiples of 16 bytes.
template <class Decoder>
bool aligned(const Product& product) {
  constexpr std::int64_t kLoad = 16;
  const bool inputs = reinterpret_cast<std::uintptr_t>(product.x) % kLoad == 0 &&
                      product.x_stride % (kLoad / 4) == 0;
  const bool weights = reinterpret_cast<std::uintptr_t>(product.weight) % kLoad == 0 &&
                       product.weight_stride % kLoad == 0;
  return inputs && (weights || !kLoadedAtOnce<Decoder>);
}

}  // namespace

void launch_linear(const LinearTarget& target, const TensorView& x, const Queue& queue) {
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
    using Decoder = decltype(decoder);
    if (aligned<Decoder>(product)) {
      launch_rows<Decoder, true>(product, queue);
    } else {
      launch_rows<Decoder, false>(product, queue);
    }
  });
  CHECK(known, "load_weight accepted a type without a kernel");
}

}  // namespace llorch::compute::cuda
