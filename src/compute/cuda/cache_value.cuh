// A key/value cache in device memory: float32, half, or Q8_0. Places are counted in values.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>

#include "compute/cuda/quant.cuh"
#include "compute/ops.h"

namespace llorch::compute::cuda {

struct FloatCache {
  static constexpr int kTogether = 1;  // values that are stored together
  float* data;

  __device__ float at(std::int64_t index) const { return data[index]; }
  __device__ void store(std::int64_t index, const float* values) const { data[index] = *values; }
};

struct HalfCache {
  static constexpr int kTogether = 1;
  __half* data;

  __device__ float at(std::int64_t index) const { return __half2float(data[index]); }
  __device__ void store(std::int64_t index, const float* values) const {
    data[index] = __float2half_rn(*values);
  }
};

struct QuantCache {
  static constexpr int kTogether = Q8_0::kElems;
  std::uint8_t* data;

  __device__ float at(std::int64_t index) const {
    return Q8_0::at(data + index / kTogether * Q8_0::kBytes, static_cast<int>(index % kTogether));
  }
  // The rounding of compute/quantize. What the type cannot hold is NaN throughout.
  __device__ void store(std::int64_t index, const float* values) const {
    std::uint8_t* block = data + index / kTogether * Q8_0::kBytes;
    float largest = 0;
    bool is_finite = true;
    for (int i = 0; i < kTogether; ++i) {
      is_finite = is_finite && isfinite(values[i]);
      largest = fmaxf(largest, fabsf(values[i]));
    }
    const float step = largest / 127.0F;
    const float inverse = 1.0F / step;
    std::uint16_t scale = __half_as_ushort(__float2half_rn(step));
    const bool is_held = is_finite && (scale & 0x7C00U) != 0x7C00U;
    const float factor = is_held && isfinite(inverse) ? inverse : 0.0F;
    for (int i = 0; i < kTogether; ++i) {
      const int quant = is_held ? static_cast<int>(roundf(values[i] * factor)) : 0;
      block[2 + i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(quant));
    }
    if (!is_held) scale = 0x7E00U;
    memcpy(block, &scale, sizeof(scale));
  }
};

// Calls function(cache) with the cache that a view of this type is.
template <class Function>
void with_cache(const TensorView& view, Function&& function) {
  switch (view.dtype) {
    case tensor::DType::F16:
      return function(HalfCache{static_cast<__half*>(view.data)});
    case tensor::DType::Q8_0:
      return function(QuantCache{static_cast<std::uint8_t*>(view.data)});
    default:
      return function(FloatCache{static_cast<float*>(view.data)});
  }
}

}  // namespace llorch::compute::cuda
