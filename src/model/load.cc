#include "model/load.h"

#include <algorithm>

#include "formats/open.h"

namespace llorch::model {
namespace {

// Penalties of 64 sequences of a thousand ids each, or of one of any length.
constexpr std::int32_t kLogitChanges = 1 << 16;

}  // namespace

Result<std::shared_ptr<const LoadedModel>> load_model(const std::filesystem::path& path,
                                                      compute::Backend& backend,
                                                      const PlanOptions& options) {
  Result<formats::WeightFile> opened = formats::open_weights(path);
  if (!opened.ok()) return opened.error();
  auto file = std::make_shared<const formats::WeightFile>(opened.take());
  Result<ModelPlan> plan = plan_model(*file, options);
  if (!plan.ok()) return plan.error();
  return load_model(std::move(file), plan.take(), backend);
}

Result<std::shared_ptr<const LoadedModel>> load_model(
    std::shared_ptr<const formats::WeightFile> file, ModelPlan plan, compute::Backend& backend,
    const LoadProgress& progress) {
  Result<ModelWeights> weights = load_weights(*file, plan, backend, progress);
  if (!weights.ok()) return weights.error().in(file->path().string());
  auto model = std::make_shared<LoadedModel>();
  model->file = std::move(file);
  model->num_parameters = count_parameters(plan);
  model->config = std::move(plan.config);
  model->weights = weights.take();
  return std::shared_ptr<const LoadedModel>(std::move(model));
}

Result<std::unique_ptr<TransformerRunner>> TransformerRunner::make(
    std::shared_ptr<const LoadedModel> model, compute::Backend& backend, RunnerOptions options) {
  const ModelConfig& config = model->config;
  if (options.limits.rows == 0) options.limits.rows = backend.step_rows();
  options.limits.rows = std::max(options.limits.rows, options.limits.sequences);
  options.limits.finds_argmax = true;
  options.limits.draws = backend.can_draw() && options.observer == nullptr;
  options.limits.chooses = options.limits.draws && backend.can_choose();
  const bool edits = options.limits.chooses && backend.can_edit() && model->config.has_logits;
  options.limits.logit_changes = edits ? kLogitChanges : 0;
  options.limits.steps_in_flight = backend.runs_behind() && options.observer == nullptr ? 2 : 1;
  Result<KvStorage> cache = KvStorage::allocate(
      config, options.limits.num_blocks, options.limits.block_tokens, options.kv_dtype, backend);
  if (!cache.ok()) return cache.error();
  const std::int32_t keys_observed = options.observer != nullptr ? config.context_length : 0;
  Result<StepBuffers> buffers =
      StepBuffers::allocate(config, options.limits, keys_observed, backend);
  if (!buffers.ok()) return buffers.error();
  return std::unique_ptr<TransformerRunner>(
      new TransformerRunner(std::move(model), backend, options, cache.take(), buffers.take()));
}

void TransformerRunner::submit(const BatchPlan& plan) {
  transformer_.submit(plan, cache_, buffers_, options_.observer);
}

void TransformerRunner::choose(std::span<const RowEdits> edits) {
  transformer_.choose(edits, buffers_);
}

StepOutput TransformerRunner::collect() {
  return transformer_.collect(buffers_);
}

}  // namespace llorch::model
