// Starting a kernel, and what all kernels share.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "compute/cuda/check.h"

namespace llorch::compute::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr int kBlockThreads = 256;

// Starts `blocks` × `blocks_y` blocks of `threads` threads; a launch without any work is skipped.
template <class... Params, class... Args>
void launch(const char* what, void (*kernel)(Params...), cudaStream_t stream, std::int64_t blocks,
            std::int64_t blocks_y, int threads, const Args&... args) {
  if (blocks == 0 || blocks_y == 0) return;
  CHECK(blocks > 0 && blocks <= INT32_MAX && blocks_y > 0 && blocks_y <= 65535);
  kernel<<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_y)),
           static_cast<unsigned>(threads), 0, stream>>>(args...);
  check_cuda(cudaGetLastError(), what);
}

// The number of this thread among all of a launch in one dimension.
__device__ inline std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// An index that the caller promised and that does not hold stops the device: the next check reports
// it.
__device__ inline void require(bool condition) {
  if (!condition) __trap();
}

}  // namespace llorch::compute::cuda
