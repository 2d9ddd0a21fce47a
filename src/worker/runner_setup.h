// The part of a start that takes memory: the model's weights, its cache and its step buffers. The
// same code runs on a real backend and on one that only counts, so that a plan is what happens.
#pragma once

#include <memory>

#include "base/result.h"
#include "compute/backend.h"
#include "formats/weight_file.h"
#include "model/load.h"
#include "worker/run_options.h"

namespace llorch::worker {

struct OpenedModel {
  std::shared_ptr<const formats::WeightFile> file;
  model::ModelPlan plan;
};

// Opens --model and checks that it can run with --ctx; loads nothing.
Result<OpenedModel> open_model(const WorkerOptions& options);

// The cache is cut to what is free on the backend, so the weights come first. The backend outlives
// the result.
Result<std::unique_ptr<model::TransformerRunner>> make_runner(
    const WorkerOptions& options, std::shared_ptr<const model::LoadedModel> loaded,
    compute::Backend& backend);

}  // namespace llorch::worker
