// Where kernels are enqueued.
#pragma once

#include <cuda_runtime_api.h>

namespace llorch::compute::cuda {

struct Queue {
  cudaStream_t stream = nullptr;
  // A kernel may begin while the one before it ends (launch.cuh): sm_90 and code compiled for it.
  bool has_edges = false;
};

}  // namespace llorch::compute::cuda
