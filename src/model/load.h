// Path + backend → a loaded model, and a runner over it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/result.h"
#include "compute/backend.h"
#include "formats/weight_file.h"
#include "model/architecture.h"
#include "model/config.h"
#include "model/runner.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace llorch::model {

// A model ready to run: its file (mapped), its numbers, its weights on one backend. Immutable,
// shared by runners.
struct LoadedModel {
  std::shared_ptr<const formats::WeightFile> file;
  ModelConfig config;
  ModelWeights weights;
  std::int64_t num_parameters = 0;
};

// The backend outlives the model.
Result<std::shared_ptr<const LoadedModel>> load_model(const std::filesystem::path& path,
                                                      compute::Backend& backend,
                                                      const PlanOptions& options = {});
// The same from an open file and its plan (architecture.h), for callers that look at the plan
// first.
Result<std::shared_ptr<const LoadedModel>> load_model(
    std::shared_ptr<const formats::WeightFile> file, ModelPlan plan, compute::Backend& backend,
    const LoadProgress& progress = {});

struct RunnerOptions {
  RunnerLimits
      limits;  // the rows that are asked for; the runner has them for each sequence at least
  tensor::DType kv_dtype = tensor::DType::F32;
  // With an observer, attention scores over up to the whole context are kept for it: small models
  // only.
  ForwardObserver* observer = nullptr;
};

// The model with a cache and step buffers of its own: what an engine runs.
class TransformerRunner final : public ModelRunner {
 public:
  static Result<std::unique_ptr<TransformerRunner>> make(std::shared_ptr<const LoadedModel> model,
                                                         compute::Backend& backend,
                                                         RunnerOptions options);

  std::int32_t vocab_size() const override { return model_->config.vocab_size; }
  std::int32_t hidden_dim() const override { return model_->config.hidden_dim; }
  std::int32_t context_length() const override { return model_->config.context_length; }
  const RunnerLimits& limits() const override { return options_.limits; }
  // Computes at once where the host is the device. Where not, a step with several rows of a
  // sequence is nearly done when this returns, so that it can be given up (Backend::aborted).
  void submit(const BatchPlan& plan) override;
  void choose(std::span<const RowEdits> edits) override;
  StepOutput collect() override;
  // Of a part of a model (split.h): `stream` is what the part before left, and becomes what this
  // one leaves for the next, valid until its next step.
  StepOutput pass(const BatchPlan& plan, std::span<const float>& stream) {
    transformer_.submit(plan, cache_, buffers_, options_.observer, &stream);
    return collect();
  }

  const LoadedModel& model() const { return *model_; }
  const KvStorage& cache() const { return cache_; }
  const StepBuffers& buffers() const { return buffers_; }

 private:
  TransformerRunner(std::shared_ptr<const LoadedModel> model, compute::Backend& backend,
                    RunnerOptions options, KvStorage cache, StepBuffers buffers)
      : model_(std::move(model)),
        options_(options),
        transformer_(model_->config, model_->weights, backend),
        cache_(std::move(cache)),
        buffers_(std::move(buffers)) {}

  std::shared_ptr<const LoadedModel> model_;
  RunnerOptions options_;
  Transformer transformer_;
  KvStorage cache_;
  StepBuffers buffers_;
};

}  // namespace llorch::model
