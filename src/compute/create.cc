#include "compute/create.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/host_limits.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cuda/create_cuda.h"
#include "compute/limits.h"
#include "compute/reference/reference_backend.h"

namespace llorch::compute {
namespace {

// N of "cuda:N"; nothing for any other name.
std::optional<int> cuda_device(std::string_view name) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int device = -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, device);
  if (error != std::errc() || stop != end || device < 0) return std::nullopt;
  return device;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(std::string_view name,
                                              const BackendOptions& options) {
  if (name == "reference") {
    return make_reference_backend({.products = [wish = options.input.value_or(InputForm::F32)](
                                                   auto weight) { return form_for(wish, weight); },
                                   .weights = [form = options.weights](auto) { return form; }});
  }
  if (options.weights != WeightForm::Exact) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has its own form of weights for each type; {} weights for all can "
                             "be had on reference",
                             name, compute::name(options.weights))};
  }
  if (name == "cpu") {
    if (options.threads < 0) {
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("cpu: {} threads, expected at least 1, or 0 for all cores", options.threads)};
    }
    return make_cpu_backend(options.threads > 0 ? options.threads : base::usable_cores(),
                            options.isa, options.input);
  }
  if (const auto device = cuda_device(name)) {
    if (options.input.value_or(InputForm::F32) == InputForm::F32) return make_cuda_backend(*device);
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has one form of input for each type of weights; {} input for all "
                             "can be had on cpu and reference",
                             name, compute::name(*options.input))};
  }
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("no backend '{}'; there are: cpu, reference, cuda:N (as in cuda:0)", name)};
}

int num_cuda_devices() {
  return count_cuda_devices();
}

Result<HostLimits> measure_limits(std::string_view backend, int num_threads) {
  if (const auto device = cuda_device(backend)) return measure_cuda_limits(*device);
  return measure_host_limits(num_threads);
}

}  // namespace llorch::compute
