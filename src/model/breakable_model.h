// Tests only: a golden model that can be broken on purpose, to see which checkpoint notices.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "formats/open.h"
#include "model/golden_fixture.h"

namespace llorch::model {

// A model that can be broken on purpose: its plan is editable and tensors can be replaced by edited
// copies.
class BreakableModel {
 public:
  // A folder of tests/golden.
  explicit BreakableModel(std::string_view name = "gpt2_tiny")
      : backend_(test_backend("cpu")),
        file_(std::make_shared<const formats::WeightFile>(
            formats::open_weights(test::source_path(fmt::format("tests/golden/{}", name))).take())),
        plan_(plan_model(*file_).take()),
        reference_(Golden(name).trace()) {}

  ModelPlan& plan() { return plan_; }
  const Trace& reference() const { return reference_; }
  compute::Backend& backend() { return *backend_; }

  MappedTensor& mapped(Role role, std::int32_t layer) {
    for (MappedTensor& mapped : plan_.tensors) {
      if (mapped.spec.role == role && mapped.spec.layer == layer) return mapped;
    }
    CHECK(false, "no such tensor");
  }

  // Replaces a tensor by an edited copy of itself; values are F32 in the file's own order.
  void edit(Role role, std::int32_t layer, const std::function<void(std::vector<float>&)>& change) {
    MappedTensor& target = mapped(role, layer);
    auto values = std::make_unique<std::vector<float>>(values_of<float>(*target.tensor));
    change(*values);
    auto copy = std::make_unique<formats::WeightTensor>(*target.tensor);
    copy->bytes = std::as_bytes(std::span(*values));
    target.tensor = copy.get();
    owned_values_.push_back(std::move(values));
    owned_tensors_.push_back(std::move(copy));
  }

  Trace record() { return record_on(*backend_); }
  Trace record_on(compute::Backend& backend) const {
    const auto model = load_model(file_, plan_, backend).take();
    const auto greedy =
        static_cast<std::int32_t>(reference_.greedy_ids.size() - reference_.ids.size());
    return record_trace(model, backend, reference_.ids, greedy).take();
  }

  void expect_fails(int number) { expect_fails(number, record()); }
  void expect_fails(int number, const Trace& ours) const {
    const CheckpointResult result = compare(ours, reference_)[static_cast<std::size_t>(number - 1)];
    EXPECT_FALSE(result.passed) << "checkpoint " << number << " did not notice; max error "
                                << result.max_error;
    EXPECT_FALSE(result.difference.empty());
  }

 private:
  std::unique_ptr<compute::Backend> backend_;
  std::shared_ptr<const formats::WeightFile> file_;
  ModelPlan plan_;
  Trace reference_;
  std::vector<std::unique_ptr<std::vector<float>>> owned_values_;
  std::vector<std::unique_ptr<formats::WeightTensor>> owned_tensors_;
};

// The frequencies of a rotation that no scaling has changed.
inline std::vector<float> unscaled(std::size_t count, double theta) {
  std::vector<float> frequencies(count);
  for (std::size_t i = 0; i < count; ++i) {
    frequencies[i] =
        static_cast<float>(std::pow(theta, -static_cast<double>(i) / static_cast<double>(count)));
  }
  return frequencies;
}

}  // namespace llorch::model
