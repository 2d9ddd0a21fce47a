// A CUDA device as a Backend. cuda_absent.cc answers instead where the build has no CUDA.
#pragma once

#include <memory>

#include "base/result.h"
#include "compute/backend.h"
#include "compute/limits.h"

namespace llorch::compute {

// Fails with Unavailable, listing the devices found, where device number `device` is not among
// them.
Result<std::unique_ptr<Backend>> make_cuda_backend(int device);

// 0 also where nobody can say.
int count_cuda_devices();

// For a device that is there. Takes 512 MB of its memory while it lasts.
Result<HostLimits> measure_cuda_limits(int device);

}  // namespace llorch::compute
