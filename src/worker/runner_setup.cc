#include "worker/runner_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "builtin_model/builtin_model.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"
#include "formats/open.h"
#include "model/split.h"
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

Result<ModelParts> load_parts(const OpenedModel& opened, Devices devices,
                              const model::LoadProgress& progress) {
  std::vector<std::int64_t> free_bytes;
  for (const auto& device : devices) free_bytes.push_back(device->free_bytes());
  const Result<std::vector<std::int32_t>> layers =
      model::share_layers(opened.plan.config.num_layers, free_bytes);
  if (!layers.ok()) return layers.error();
  std::vector<model::ModelPlan> plans = model::split_plan(opened.plan, *layers);
  const std::int64_t total = std::accumulate(plans.begin(), plans.end(), std::int64_t{0},
                                             [](std::int64_t sum, const model::ModelPlan& plan) {
                                               return sum + model::weight_bytes(plan);
                                             });
  ModelParts parts;
  std::int64_t before = 0;  // bytes of the parts that are loaded
  for (std::size_t i = 0; i < plans.size(); ++i) {
    Result<std::shared_ptr<const model::LoadedModel>> part = model::load_model(
        opened.file, std::move(plans[i]), *devices[i], [&](std::int64_t done, std::int64_t) {
          return !progress || progress(before + done, total);
        });
    if (!part.ok()) return part.error();
    before += (*part)->weights.bytes;
    parts.push_back(part.take());
  }
  return parts;
}

namespace {

// As many as all devices have room for: each block is on all of them, with the layers that are
// there.
Result<std::int32_t> plan_blocks(const WorkerOptions& options, const ModelParts& model,
                                 Devices devices) {
  std::int64_t all_layers = 0;
  for (const auto& part : model) all_layers += part->config.num_layers;
  std::int32_t least = std::numeric_limits<std::int32_t>::max();
  for (std::size_t i = 0; i < model.size(); ++i) {
    const model::ModelConfig& config = model[i]->config;
    const Result<std::int64_t> block_bytes =
        model::KvStorage::block_bytes(config, contract::kCacheBlockTokens, options.kv_dtype);
    if (!block_bytes.ok()) return block_bytes.error().in("--kv");
    std::optional<std::uint64_t> wanted = options.kv_memory_bytes;
    if (wanted && model.size() > 1) {
      *wanted = static_cast<std::uint64_t>(static_cast<double>(*wanted) * config.num_layers /
                                           static_cast<double>(all_layers));
    }
    const Result<std::int32_t> blocks = plan_cache_blocks({.block_bytes = *block_bytes,
                                                           .context = config.context_length,
                                                           .max_batch = options.max_batch},
                                                          wanted, devices[i]->free_bytes());
    if (!blocks.ok()) return blocks.error();
    least = std::min(least, *blocks);
  }
  return least;
}

}  // namespace

Result<MadeRunner> make_runner(const WorkerOptions& options, const ModelParts& model,
                               Devices devices) {
  CHECK(!model.empty() && model.size() == devices.size());
  const Result<std::int32_t> blocks = plan_blocks(options, model, devices);
  if (!blocks.ok()) return blocks.error();
  model::RunnerOptions runner;
  runner.kv_dtype = options.kv_dtype;
  // One for each sequence; where there are few, enough for a prompt that is scored to get on.
  runner.limits.logit_rows = std::max(kLogitRows, options.max_batch);
  runner.limits.sequences = options.max_batch;
  runner.limits.num_blocks = *blocks;
  runner.limits.block_tokens = contract::kCacheBlockTokens;
  MadeRunner made;
  std::vector<std::unique_ptr<model::TransformerRunner>> parts;
  for (std::size_t i = 0; i < model.size(); ++i) {
    Result<std::unique_ptr<model::TransformerRunner>> part =
        model::TransformerRunner::make(model[i], *devices[i], runner);
    if (!part.ok()) return part.error();
    made.parts.push_back(part->get());
    parts.push_back(part.take());
  }
  if (parts.size() == 1) {
    made.runner = std::move(parts.front());
  } else {
    made.runner = std::make_unique<model::SplitRunner>(std::move(parts));
  }
  return made;
}

}  // namespace llorch::worker
