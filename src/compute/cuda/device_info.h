// What CUDA says of devices before anything is computed on them, and why there is none.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "compute/backend.h"

namespace llorch::compute::cuda {

std::string describe_device(int device);  // "cuda:0 (NVIDIA H200, sm_90)"
DeviceFacts read_facts(int device);
// Unavailable: lists those that are there, or says what is wrong with the driver.
Error no_such_device(int device, int num_devices, cudaError_t status);
Error device_failed(std::string_view name, std::string_view what, cudaError_t status);

}  // namespace llorch::compute::cuda
