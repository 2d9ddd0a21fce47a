#include "compute/test_backends.h"

namespace llorch::compute::test {

std::vector<BackendConfig> backends_under_test() {
  return {{.label = "cuda_0", .backend = "cuda:0", .isa = ""}};
}

}  // namespace llorch::compute::test
