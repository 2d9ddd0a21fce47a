#include "compute/cuda/device_info.h"

#include <fmt/format.h>

#include <array>

#include "compute/cuda/check.h"
#include "compute/cuda/create_cuda.h"

namespace llorch::compute {
namespace cuda {
namespace {

std::string version_text(int version) {  // 13020 is 13.2
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// CUDA has one error for a driver that is too old and for none at all.
std::string explain_none(cudaError_t status) {
  int driver = 0;
  int runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = 0;
  if (driver == 0) {
    return fmt::format("no NVIDIA driver is installed; this program needs one for CUDA {}",
                       version_text(runtime));
  }
  if (driver < runtime / 1000 * 1000) {
    return fmt::format(
        "the NVIDIA driver is for CUDA {}, this program needs one for CUDA {}: install a newer one",
        version_text(driver), version_text(runtime));
  }
  return cudaGetErrorString(status != cudaSuccess ? status : cudaErrorNoDevice);
}

}  // namespace

std::string describe_device(int device) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    return fmt::format("cuda:{} (unreadable)", device);
  }
  return fmt::format("cuda:{} ({}, sm_{}{})", device, properties.name, properties.major,
                     properties.minor);
}

DeviceFacts read_facts(int device) {
  cudaDeviceProp properties{};
  int runtime = 0;
  std::array<char, 32> bus_id{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  check_cuda(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device),
             "cudaDeviceGetPCIBusId");
  return {.sm = properties.major * 10 + properties.minor,
          .runtime_version = version_text(runtime),
          .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
          .bus_id = bus_id.data()};
}

Error no_such_device(int device, int num_devices, cudaError_t status) {
  std::string found;
  for (int i = 0; i < num_devices; ++i) found += (i > 0 ? ", " : "") + describe_device(i);
  if (num_devices == 0) found = fmt::format("none ({})", explain_none(status));
  return {ErrorCode::Unavailable,
          fmt::format("cuda:{}: there is no such device; CUDA devices found: {}", device, found)};
}

Error device_failed(std::string_view name, std::string_view what, cudaError_t status) {
  return {ErrorCode::DeviceFailed,
          fmt::format("{}: {}: {}", name, what, cudaGetErrorString(status))};
}

}  // namespace cuda

int count_cuda_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace llorch::compute
