#include <fmt/format.h>

#include "compute/cuda/create_cuda.h"

namespace llorch::compute {

Result<std::unique_ptr<Backend>> make_cuda_backend(int device) {
  return Error{ErrorCode::Unsupported,
               fmt::format("cuda:{}: built without CUDA; there are: cpu, reference", device)};
}

}  // namespace llorch::compute
