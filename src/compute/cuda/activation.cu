// Activation functions, value by value.
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

__device__ float activate(Activation kind, float x) {
  constexpr float kSqrtTwoOverPi = 0.7978845608028654F;
  constexpr float kSqrtHalf = 0.7071067811865476F;
  switch (kind) {
    case Activation::GeluTanh:
      return 0.5F * x * (1.0F + tanhf(kSqrtTwoOverPi * fmaf(0.044715F * x * x, x, x)));
    case Activation::GeluErf:
      return 0.5F * x * (1.0F + erff(x * kSqrtHalf));
    case Activation::Silu:
      return x / (1.0F + expf(-x));
    case Activation::Relu:
      return x > 0.0F ? x : 0.0F;
  }
  return x;
}

// Two neighbours a thread; where the row ends between them, one.
__global__ void activation_kernel(Gated args, RoundedRows rounded) {
  after_previous();
  const std::int64_t pairs = (args.dim + 1) / 2;
  const std::int64_t index = global_thread();
  if (index >= args.rows * pairs) return;
  const std::int64_t row = index / pairs;
  const std::int64_t col = index % pairs * 2;
  float values[2] = {};
  for (int i = 0; i < 2 && col + i < args.dim; ++i) {
    values[i] = activate(args.kind, args.x[row * args.x_stride + col + i]);
    if (args.gate_with != nullptr) values[i] *= args.gate_with[row * args.gate_stride + col + i];
    args.out[row * args.out_stride + col + i] = values[i];
  }
  if (rounded.data != nullptr) rounded.put2(row, static_cast<int>(col), values[0], values[1]);
}

__global__ void round_rows_kernel(const float* x, std::int64_t x_stride, std::int64_t rows,
                                  std::int64_t dim, RoundedRows rounded) {
  after_previous();
  const std::int64_t pairs = rounded.stride / 2;
  const std::int64_t index = global_thread();
  if (index >= rows * pairs) return;
  const std::int64_t row = index / pairs;
  const std::int64_t col = index % pairs * 2;
  const float* at = x + row * x_stride + col;
  rounded.put2(row, static_cast<int>(col), col < dim ? at[0] : 0.0F, col + 1 < dim ? at[1] : 0.0F);
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
  launch("round_rows", round_rows_kernel, queue,
         ceil_div(x.rows() * (rounded.stride / 2), kBlockThreads), 1, kBlockThreads,
         static_cast<const float*>(x.data), x.row_stride, x.rows(), x.dims[1],
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
  launch("activation", activation_kernel, queue,
         ceil_div(gated.rows * ((gated.dim + 1) / 2), kBlockThreads), 1, kBlockThreads, gated,
         RoundedRows{rounded});
}

}  // namespace llorch::compute::cuda
