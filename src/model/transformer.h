// The one forward pass. Every architecture, prefill and decode, one sequence or many, runs through
// here; what differs is in ModelConfig and ModelWeights. No state: cache and buffers are handed in.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compute/backend.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/kv_storage.h"
#include "model/runner.h"
#include "model/step_buffers.h"
#include "model/weights.h"

namespace llorch::model {

// Sees intermediate results of a step, for checkpoints. Watching costs extra work, so nobody
// watches in production.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // name: "embedding", "attn_norm", "qkv" (as projected), "attn_in" (the same after QK norm and
  // rotation: what attention reads and the cache keeps), "scores", "attn_merged", "attn_out",
  // "ffn_norm", "ffn_inner" (after the activation), "ffn_out" (both as added to the residual),
  // "block", "output_norm"; layer -1 outside layers. The view is device memory, valid during the
  // call.
  virtual void on_tensor(std::string_view name, std::int32_t layer,
                         const compute::TensorView& view) = 0;
};

class Transformer {
 public:
  // All three outlive this object.
  Transformer(const ModelConfig& config, const ModelWeights& weights, compute::Backend& backend)
      : config_(config), weights_(weights), backend_(backend) {}

  // See ModelRunner::submit, choose and collect. `stream`, for a part of a model: the residual
  // stream (rows, hidden) as the part before left it; then as this one leaves it, in `buffers`.
  void submit(const BatchPlan& plan, const KvStorage& cache, StepBuffers& buffers,
              ForwardObserver* observer = nullptr, std::span<const float>* stream = nullptr) const;
  void choose(std::span<const RowEdits> edits, StepBuffers& buffers) const;
  StepOutput collect(StepBuffers& buffers) const;

 private:
  struct Step;  // one call's views

  struct Targets;

  // What submit() was called with.
  struct Submission {
    const BatchPlan& plan;
    const KvStorage& cache;
    ForwardObserver* observer;
    std::span<const float>* stream;
  };
  // The whole step; its results come to this place.
  StepBuffers::Flight run(const Submission& submission, StepBuffers& buffers, int place) const;
  Step stage(const BatchPlan& plan, const KvStorage& cache, StepBuffers& buffers,
             ForwardObserver* observer) const;
  // False when the step was given up.
  bool run_layers(const Step& step, const compute::StepShape& shape) const;
  void upload_embeddings(const Step& step, const BatchPlan& plan) const;
  void embed(const Step& step, const BatchPlan& plan,
             std::span<const compute::RopeAnglesArgs> angles) const;
  void prepare(const Step& step, const BatchPlan& plan) const;
  void attention_block(const Step& step, std::int32_t layer) const;
  void mlp_block(const Step& step, std::int32_t layer) const;
  void finish(const Step& step) const;
  StepBuffers::Flight fetch(const Step& step, StepBuffers& buffers, int place) const;
  // The residual stream on its way to another device.
  void send_stream(const Step& step, std::span<const float> stream) const;
  std::span<const float> fetch_stream(const Step& step, StepBuffers& buffers) const;
  // The chosen rows after the last norm, in `out`.
  void pick_rows(const Step& step, const compute::TensorView& indices,
                 const compute::TensorView& out) const;
  compute::RowNorm row_norm(const Norm& norm) const;
  // Norms the residual stream for an observer: a product may keep its normed input to itself.
  void observe_norm(const Step& step, const Norm& norm, std::string_view name,
                    std::int32_t layer) const;
  // What a block adds to the residual stream: a projection, and its post norm where there is one.
  struct Addition {
    const Linear& linear;
    const Norm& post_norm;
    std::string_view observed_name;
    std::int32_t layer;
  };
  void add_to_residual(const Step& step, const compute::TensorView& x,
                       const Addition& addition) const;

  const ModelConfig& config_;
  const ModelWeights& weights_;
  compute::Backend& backend_;
};

}  // namespace llorch::model
