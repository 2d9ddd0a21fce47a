#include "worker/runner_setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "builtin_model/builtin_model.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"
#include "formats/open.h"
#include "worker/cache_plan.h"

namespace llorch::worker {
namespace {

constexpr std::int32_t kLogitRows = 8;

}  // namespace

Result<OpenedModel> open_model(const WorkerOptions& options) {
  // The model that is part of the program has no files beside it.
  Result<formats::WeightFile> opened = options.model == contract::kBuiltinModel
                                           ? builtin_model::open()
                                           : formats::open_weights(options.model);
  if (!opened.ok()) return opened.error();
  auto file = std::make_shared<const formats::WeightFile>(opened.take());
  Result<model::ModelPlan> plan = model::plan_model(*file, {.context_length = options.context});
  if (!plan.ok()) return plan.error();
  if (options.context > plan->config.context_length) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("--ctx {} is more than the model's own context of {}; leave --ctx out "
                             "or ask for less",
                             options.context, plan->config.context_length)};
  }
  return OpenedModel{std::move(file), plan.take()};
}

Result<std::unique_ptr<model::TransformerRunner>> make_runner(
    const WorkerOptions& options, std::shared_ptr<const model::LoadedModel> loaded,
    compute::Backend& backend) {
  const model::ModelConfig& config = loaded->config;
  const Result<std::int64_t> block_bytes =
      model::KvStorage::block_bytes(config, contract::kCacheBlockTokens, options.kv_dtype);
  if (!block_bytes.ok()) return block_bytes.error().in("--kv");
  const Result<std::int32_t> blocks =
      plan_cache_blocks({.block_bytes = *block_bytes,
                         .context = config.context_length,
                         .max_batch = options.max_batch},
                        options.kv_memory_bytes, backend.free_bytes());
  if (!blocks.ok()) return blocks.error();
  model::RunnerOptions runner;
  runner.kv_dtype = options.kv_dtype;
  // One for each sequence; where there are few, enough for a prompt that is scored to get on.
  runner.limits.logit_rows = std::max(kLogitRows, options.max_batch);
  runner.limits.sequences = options.max_batch;
  runner.limits.num_blocks = *blocks;
  runner.limits.block_tokens = contract::kCacheBlockTokens;
  return model::TransformerRunner::make(std::move(loaded), backend, runner);
}

}  // namespace llorch::worker
