#include "compute/create.h"

#include <fmt/format.h>

#include "compute/cpu/cpu_backend.h"
#include "compute/reference/reference_backend.h"

namespace llorch::compute {

Result<std::unique_ptr<Backend>> make_backend(std::string_view name,
                                              const BackendOptions& options) {
  if (name == "reference") return make_reference_backend();
  if (name == "cpu") {
    if (options.threads < 0) {
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("cpu: {} threads, expected at least 1, or 0 for all cores", options.threads)};
    }
    return make_cpu_backend(options.threads > 0 ? options.threads : usable_cores(), options.isa);
  }
  if (name == "cuda" || name.starts_with("cuda:")) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{}: built without CUDA; there are: cpu, reference", name)};
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("no backend '{}'; there are: cpu, reference", name)};
}

}  // namespace llorch::compute
