// Activation functions, value by value.
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.cuh"

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

__global__ void activation_kernel(Gated args) {
  const std::int64_t index = global_thread();
  if (index >= args.rows * args.dim) return;
  const std::int64_t row = index / args.dim;
  const std::int64_t col = index % args.dim;
  float value = activate(args.kind, args.x[row * args.x_stride + col]);
  if (args.gate_with != nullptr) value *= args.gate_with[row * args.gate_stride + col];
  args.out[row * args.out_stride + col] = value;
}

__global__ void softcap_kernel(Gated args, float cap) {
  const std::int64_t index = global_thread();
  if (index >= args.rows * args.dim) return;
  const std::int64_t row = index / args.dim;
  const std::int64_t col = index % args.dim;
  args.out[row * args.out_stride + col] = cap * tanhf(args.x[row * args.x_stride + col] / cap);
}

}  // namespace

void launch_softcap(const SoftcapArgs& args, cudaStream_t stream) {
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
  launch("softcap", softcap_kernel, stream, ceil_div(capped.rows * capped.dim, kBlockThreads), 1,
         kBlockThreads, capped, args.cap);
}

void launch_activation(const ActivationArgs& args, cudaStream_t stream) {
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
  launch("activation", activation_kernel, stream, ceil_div(gated.rows * gated.dim, kBlockThreads),
         1, kBlockThreads, gated);
}

}  // namespace llorch::compute::cuda
