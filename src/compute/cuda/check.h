// The one way a call into the CUDA runtime is checked where failing is not expected: a device that
// breaks in the middle of a step leaves nothing to go on with.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <string>

#include "compute/device_failure.h"

namespace llorch::compute::cuda {

inline void check_cuda(cudaError_t status, const char* what,
                       std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) [[likely]]
    return;
  const std::string said = std::string(cudaGetErrorName(status)) + ": " +
                           cudaGetErrorString(status) + " (" + where.file_name() + ":" +
                           std::to_string(where.line()) + ")";
  end_with_device_failure(what, said);
}

}  // namespace llorch::compute::cuda
