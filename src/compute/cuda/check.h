// The one way a call into the CUDA runtime is checked where failing is not expected: a device that
// breaks in the middle of a step leaves nothing to go on with.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>

#include "base/check.h"

namespace llorch::compute::cuda {

inline void check_cuda(cudaError_t status, const char* what,
                       std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) [[likely]]
    return;
  const std::string note =
      std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status);
  base::check_failed(what, note, where.file_name(), static_cast<int>(where.line()));
}

}  // namespace llorch::compute::cuda
