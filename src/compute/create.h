// Name → Backend.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "compute/backend.h"

namespace llorch::compute {

struct BackendOptions {
  int threads = 0;  // CPU: 0 means one per core this process may use
  // CPU: force an instruction set ("scalar", "avx2", …) for tests; empty picks the best.
  std::string_view isa = {};
  // CPU and reference: the form of every product's input (form_for), to measure what it costs.
  // Nothing: what the backend's kernels are made for; exact on the reference.
  std::optional<InputForm> input = {};
  // Reference: the form of every product's weights, to measure what it costs. Half needs weights
  // of types that round_weights() knows.
  WeightForm weights = WeightForm::Exact;
};

// "reference", "cpu", or "cuda:N". Asking for a device that is not there is an error that says what
// is, never a quiet fallback.
Result<std::unique_ptr<Backend>> make_backend(std::string_view name,
                                              const BackendOptions& options = {});

// CUDA devices of this machine; 0 also where the build has no CUDA or there is no driver.
int num_cuda_devices();

}  // namespace llorch::compute
