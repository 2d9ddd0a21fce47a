// Starting a kernel, and what all kernels share.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "compute/cuda/check.h"
#include "compute/cuda/queue.h"

namespace llorch::compute::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr int kBlockThreads = 256;

// Kernels of a stream overlap by their edges: each begins with after_previous(), before which it
// may touch only what no kernel of the step writes, and from which on everything enqueued before is
// there. The next kernel may then set itself up too.
__device__ inline void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void release_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void after_previous() {
  wait_for_previous();
  release_next();
}

// Reads a kernel's parameters before it waits: they come through a cache that is cold, and what
// first needs them after the wait would wait once more.
template <class Params>
__device__ __forceinline__ void touch(const Params& params) {
  constexpr int kLine = 64;
  const auto* words = reinterpret_cast<const std::uint32_t*>(&params);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(Params) / 4); i += kLine / 4)
    asm volatile("" ::"r"(words[i]));
}

// How a kernel is started beside its arguments.
struct LaunchShape {
  dim3 blocks;
  int threads = 0;
  std::size_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks along x that run together
};

// Every kernel here calls after_previous().
template <class... Params, class... Args>
void launch_shaped(const char* what, void (*kernel)(Params...), const Queue& queue,
                   const LaunchShape& shape, const Args&... args) {
  constexpr std::size_t kSharedFree = 48 * 1024;  // more has to be asked for
  if (shape.shared_bytes > kSharedFree) {
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.shared_bytes)),
               what);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = queue.stream;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (queue.has_edges) {
    cudaLaunchAttribute& edge = attributes[config.numAttrs++];
    edge.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    edge.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {shape.cluster, 1, 1};
  }
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), what);
}

// Starts `blocks` × `blocks_y` blocks of `threads` threads; a launch without any work is skipped.
template <class... Params, class... Args>
void launch(const char* what, void (*kernel)(Params...), const Queue& queue, std::int64_t blocks,
            std::int64_t blocks_y, int threads, const Args&... args) {
  if (blocks == 0 || blocks_y == 0) return;
  CHECK(blocks > 0 && blocks <= INT32_MAX && blocks_y > 0 && blocks_y <= 65535);
  launch_shaped(what, kernel, queue,
                {.blocks = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_y)),
                 .threads = threads},
                args...);
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
