// From options to a model that serves: load, make tokenizer, template and engine, warm up.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "worker/run_options.h"
#include "worker/serving_model.h"

namespace llorch::worker {

// Progress from 0 to 1; false gives up (Cancelled).
using StartupProgress = std::function<bool(double progress)>;

// `devices`: "cpu", or "cuda:N" for each GPU that gets some of the layers. Blocks as long as it
// takes; not on an io thread. Returns after one generation on a sequence of its own, whose blocks
// are free again.
Result<std::unique_ptr<ServingModel>> load_serving_model(const WorkerOptions& options,
                                                         std::span<const std::string> devices,
                                                         const StartupProgress& progress);

}  // namespace llorch::worker
