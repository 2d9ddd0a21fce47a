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
  // Block types without tiles, on every instruction set.
  for (const Isa& isa : available_isas()) {
    configs.push_back({.label = fmt::format("cpu_{}_3_f32", isa.name),
                       .backend = "cpu",
                       .isa = std::string(isa.name),
                       .threads = 3,
                       .input = InputForm::F32});
  }
  // What the other forms mean does not depend on the instruction set: the best one stands for all.
  for (const InputForm input : {InputForm::F16, InputForm::BF16, InputForm::Int8}) {
    const std::string isa(available_isas().front().name);
    configs.push_back({.label = fmt::format("cpu_{}_3_{}", isa, name(input)),
                       .backend = "cpu",
                       .isa = isa,
                       .threads = 3,
                       .input = input});
  }
  return configs;
}

}  // namespace llorch::compute::test
