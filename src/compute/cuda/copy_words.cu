// A few words from one place on the device to another.
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.cuh"

namespace llorch::compute::cuda {
namespace {

__global__ void copy_words_kernel(const std::uint32_t* from, int count, std::uint32_t* to) {
  after_previous();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kBlockThreads) to[i] = from[i];
}

}  // namespace

void launch_copy_words(const void* from, void* to, std::int64_t bytes, const Queue& queue) {
  constexpr std::int64_t kWord = sizeof(std::uint32_t);
  launch("copy_words", copy_words_kernel, queue, 1, 1, kBlockThreads,
         static_cast<const std::uint32_t*>(from), static_cast<int>(bytes / kWord),
         static_cast<std::uint32_t*>(to));
}

}  // namespace llorch::compute::cuda
