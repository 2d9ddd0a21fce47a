// The activation functions, value by value.
#pragma once

#include "compute/ops.h"

namespace llorch::compute::cuda {

__device__ inline float activate(Activation kind, float x) {
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

}  // namespace llorch::compute::cuda
