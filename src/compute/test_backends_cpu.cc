#include "compute/cpu/kernels.h"
#include "compute/test_backends.h"

namespace llorch::compute::test {

std::vector<BackendConfig> backends_under_test() {
  std::vector<BackendConfig> configs;
  for (const Isa& isa : available_isas()) {
    for (const int threads : {1, 3}) {
      configs.push_back({.label = fmt::format("cpu_{}_{}", isa.name, threads),
                         .backend = "cpu",
                         .isa = std::string(isa.name),
                         .threads = threads});
    }
  }
  return configs;
}

}  // namespace llorch::compute::test
