// A value of the key/value cache: float32 or half.
#pragma once

#include <cuda_fp16.h>

namespace llorch::compute::cuda {

__device__ inline float from_cache(float value) {
  return value;
}
__device__ inline float from_cache(__half value) {
  return __half2float(value);
}

__device__ inline void to_cache(float value, float& cell) {
  cell = value;
}
__device__ inline void to_cache(float value, __half& cell) {
  cell = __float2half_rn(value);
}

}  // namespace llorch::compute::cuda
