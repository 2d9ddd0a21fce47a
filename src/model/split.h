// A model over several devices: cut between layers, one part on each. A step goes through them in
// turn; between two, the residual stream travels by way of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/load.h"

namespace llorch::model {

// How many of `num_layers` layers each device gets: in proportion to its share (its free memory),
// one at least. Refused where there are more devices than layers.
Result<std::vector<std::int32_t>> share_layers(std::int32_t num_layers,
                                               std::span<const std::int64_t> shares);

// The plan of each part, for load_model: `layers` sum up to those of the whole. The first part has
// the embeddings, the last the output; a matrix that is both is in both.
std::vector<ModelPlan> split_plan(const ModelPlan& whole, std::span<const std::int32_t> layers);

// Runs the parts as one model, and gives the bits that the whole gives on one such device. Steps
// are not overlapped: while one device computes, the others wait.
class SplitRunner final : public ModelRunner {
 public:
  // In the order of the layers, all with the same cache blocks; at least one.
  explicit SplitRunner(std::vector<std::unique_ptr<TransformerRunner>> parts);

  std::int32_t vocab_size() const override { return parts_.back()->vocab_size(); }
  std::int32_t hidden_dim() const override { return parts_.back()->hidden_dim(); }
  std::int32_t context_length() const override { return parts_.back()->context_length(); }
  const RunnerLimits& limits() const override { return limits_; }
  void submit(const BatchPlan& plan) override;
  StepOutput collect() override { return output_; }

 private:
  std::vector<std::unique_ptr<TransformerRunner>> parts_;
  RunnerLimits limits_;
  StepOutput output_;
};

}  // namespace llorch::model
