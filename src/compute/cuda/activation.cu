// Activation functions, value by value.
#include "compute/cuda/activate.cuh"
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/rounded_rows.cuh"

namespace llorch::compute::cuda {
namespace {

struct Gated {
  Activation kind;
  const float* x;
  std::int64_t x_stride;
  const float* gate_with;  // or null
  std::int64_t gate_stride;
  float* out;
  std::int64_t out_stride;
  std::int64_t rows;
  std::int64_t dim;
};

// Two neighbours a thread; where the row ends between them, one. A block is of one row.
__global__ void activation_kernel(Gated args, RoundedRows rounded) {
  after_previous();
  const std::int64_t row = blockIdx.y;
  const int col = static_cast<int>(blockIdx.x * kBlockThreads + threadIdx.x) * 2;
  const float* x = args.x + row * args.x_stride + col;
  const float* gate_with = args.gate_with + row * args.gate_stride + col;
  float* out = args.out + row * args.out_stride + col;
  float values[2] = {};
  for (int i = 0; i < 2 && col + i < args.dim; ++i) {
    values[i] = activate(args.kind, x[i]);
    if (args.gate_with != nullptr) values[i] *= gate_with[i];
    out[i] = values[i];
  }
  if (rounded.data != nullptr && col < args.dim)
    rounded.put2(static_cast<int>(row), col, values[0], values[1]);
}

__global__ void round_rows_kernel(const float* x, std::int64_t x_stride, std::int64_t dim,
                                  RoundedRows rounded) {
  after_previous();
  const int row = static_cast<int>(blockIdx.y);
  const int col = static_cast<int>(blockIdx.x * kBlockThreads + threadIdx.x) * 2;
  if (col >= rounded.stride) return;
  const float* at = x + row * x_stride + col;
  rounded.put2(row, col, col < dim ? at[0] : 0.0F, col + 1 < dim ? at[1] : 0.0F);
}

__global__ void softcap_kernel(Gated args, float cap) {
  after_previous();
  const std::int64_t index = global_thread();
  if (index >= args.rows * args.dim) return;
  const std::int64_t row = index / args.dim;
  const std::int64_t col = index % args.dim;
  args.out[row * args.out_stride + col] = cap * tanhf(args.x[row * args.x_stride + col] / cap);
}

}  // namespace

void launch_softcap(const SoftcapArgs& args, const Queue& queue) {
  const Gated capped{
      .kind = {},
      .x = static_cast<const float*>(args.x.data),
      .x_stride = args.x.row_stride,
      .gate_with = nullptr,
      .gate_stride = 0,
      .out = static_cast<float*>(args.out.data),
      .out_stride = args.out.row_stride,
      .rows = args.x.rows(),
      .dim = args.x.dims[1],
  };
  launch("softcap", softcap_kernel, queue, ceil_div(capped.rows * capped.dim, kBlockThreads), 1,
         kBlockThreads, capped, args.cap);
}

void launch_round_rows(const TensorView& x, const RoundedTarget& rounded, const Queue& queue) {
  launch("round_rows", round_rows_kernel, queue, ceil_div(rounded.stride / 2, kBlockThreads),
         x.rows(), kBlockThreads, static_cast<const float*>(x.data), x.row_stride, x.dims[1],
         RoundedRows{rounded});
}

void launch_activation(const ActivationArgs& args, const RoundedTarget& rounded,
                       const Queue& queue) {
  const Gated gated{
      .kind = args.kind,
      .x = static_cast<const float*>(args.x.data),
      .x_stride = args.x.row_stride,
      .gate_with = static_cast<const float*>(args.gate_with.data),
      .gate_stride = args.gate_with.row_stride,
      .out = static_cast<float*>(args.out.data),
      .out_stride = args.out.row_stride,
      .rows = args.x.rows(),
      .dim = args.x.dims[1],
  };
  launch("activation", activation_kernel, queue, ceil_div((gated.dim + 1) / 2, kBlockThreads),
         gated.rows, kBlockThreads, gated, RoundedRows{rounded});
}

}  // namespace llorch::compute::cuda
