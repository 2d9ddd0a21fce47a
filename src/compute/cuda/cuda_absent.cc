#include <fmt/format.h>

#include "compute/cuda/create_cuda.h"

namespace llorch::compute {
namespace {

Error built_without(int device) {
  return {ErrorCode::Unsupported,
          fmt::format("cuda:{}: built without CUDA; there are: cpu, reference", device)};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(int device) {
  return built_without(device);
}

int count_cuda_devices() {
  return 0;
}

Result<HostLimits> measure_cuda_limits(int device) {
  return built_without(device);
}

}  // namespace llorch::compute
