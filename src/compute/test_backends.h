// The backends that a test program is about. The program links the file that says which:
// test_backends_cpu.cc, or test_backends_cuda.cc for machines with a GPU.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "compute/create.h"
#include "compute/reference/reference_backend.h"

namespace llorch::compute::test {

struct BackendConfig {
  std::string label;  // letters, digits and underscores, for the name of the test
  std::string backend;
  std::string isa;
  int threads = 0;
  std::optional<InputForm> input = {};  // nothing: what the backend declares by itself
};
inline BackendOptions options_of(const BackendConfig& config) {
  return {.threads = config.threads, .isa = config.isa, .input = config.input};
}
inline void PrintTo(const BackendConfig& config, std::ostream* out) {
  *out << config.label;
}

std::vector<BackendConfig> backends_under_test();

inline std::unique_ptr<Backend> make(const BackendConfig& config, const StepLimits& limits) {
  auto backend = make_backend(config.backend, options_of(config));
  CHECK(backend.ok(), backend.error().message);
  CHECK(backend.value()->reserve(limits).ok());
  return backend.take();
}

// Fixture: backend_ under test beside reference_, which takes the input of products and attention
// in the forms that backend_ declares. Skips, saying why, where the device is not there.
class WithBackend : public testing::TestWithParam<BackendConfig> {
 protected:
  explicit WithBackend(const StepLimits& limits) : limits_(limits) {}

  void SetUp() override {
    auto backend = make_backend(GetParam().backend, options_of(GetParam()));
    if (!backend.ok() && backend.error().code == ErrorCode::Unavailable) {
      fmt::print(stderr, "SKIPPED, no device: {}\n", backend.error().message);
      GTEST_SKIP() << backend.error().message;
    }
    ASSERT_TRUE(backend.ok()) << backend.error().message;
    backend_ = backend.take();
    ASSERT_TRUE(backend_->reserve(limits_).ok());
    reference_ = make_reference_backend(
        {.products = [this](tensor::DType weight) { return backend_->input_form(weight); },
         .weights = [this](tensor::DType weight) { return backend_->weight_form(weight); },
         .attention = [this](tensor::DType cache) { return backend_->attention_form(cache); }});
  }

  StepLimits limits_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> reference_;
};

inline std::string label_of(const testing::TestParamInfo<BackendConfig>& test) {
  return test.param.label;
}

}  // namespace llorch::compute::test
