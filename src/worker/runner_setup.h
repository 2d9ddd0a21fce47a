// The part of a start that takes memory: the model's weights, its cache and its step buffers. The
// same code runs on a real backend and on one that only counts, so that a plan is what happens.
#pragma once

#include <memory>
#include <span>
#include <vector>

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

// The devices of a model, in the order of its layers; they outlive everything made on them.
using Devices = std::span<const std::unique_ptr<compute::Backend>>;
// What each of them has of it.
using ModelParts = std::vector<std::shared_ptr<const model::LoadedModel>>;

// Several devices share the layers by the memory that is free on them.
Result<ModelParts> load_parts(const OpenedModel& opened, Devices devices,
                              const model::LoadProgress& progress = {});

struct MadeRunner {
  std::unique_ptr<model::ModelRunner> runner;
  std::vector<const model::TransformerRunner*> parts;  // of it, one for each device
};

// The cache is cut to what is free on the devices, so the weights come first.
Result<MadeRunner> make_runner(const WorkerOptions& options, const ModelParts& model,
                               Devices devices);

}  // namespace llorch::worker
