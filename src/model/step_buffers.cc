#include "model/step_buffers.h"

#include <algorithm>
#include <cstddef>

#include "model/choices.h"

namespace llorch::model {
namespace {

using compute::TensorView;
using tensor::DType;

constexpr std::int64_t kAlignFloats = 16;

std::int64_t padded(std::int64_t elems) {
  return (elems + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

}  // namespace

Result<StepBuffers> StepBuffers::allocate(const ModelConfig& config, const RunnerLimits& limits,
                                          std::int32_t keys_observed, compute::Backend& backend) {
  CHECK(limits.rows > 0 && limits.logit_rows > 0 && limits.sequences > 0 &&
        limits.block_tokens > 0);
  StepBuffers buffers;
  buffers.limits_ = limits;
  buffers.blocks_max_ = (config.context_length + limits.block_tokens - 1) / limits.block_tokens;

  buffers.angles_.resize(config.ropes.size());
  buffers.runs_.resize(static_cast<std::size_t>(limits.rows));

  const std::int64_t rows = limits.rows;
  std::int64_t total = 0;
  // Two passes over one list: the first adds sizes up, the second hands out memory.
  const auto for_each_view = [&](auto&& visit) {
    visit(buffers.hidden_, std::initializer_list<std::int64_t>{rows, config.hidden_dim});
    visit(buffers.normed_, {rows, config.hidden_dim});
    visit(buffers.qkv_, {rows, config.qkv_width()});
    visit(buffers.merged_, {rows, config.q_width()});
    visit(buffers.ffn_, {rows, config.ffn_in_width()});
    visit(buffers.picked_, {rows, config.hidden_dim});
    visit(buffers.logits_, {limits.logit_rows, config.vocab_size});
    for (std::size_t i = 0; i < config.ropes.size(); ++i)
      visit(buffers.angles_[i], {rows, 2 * std::ssize(config.ropes[i].frequencies)});
    if (keys_observed > 0) visit(buffers.scores_, {rows, config.num_heads, keys_observed});
  };
  for_each_view([&](TensorView&, std::initializer_list<std::int64_t> dims) {
    std::int64_t elems = 1;
    for (const std::int64_t dim : dims) elems *= dim;
    total += padded(elems);
  });
  Result<compute::Buffer> floats =
      backend.allocate(total * static_cast<std::int64_t>(sizeof(float)));
  if (!floats.ok()) return floats.error().in("step buffers");
  buffers.floats_ = floats.take();
  auto* next = static_cast<float*>(buffers.floats_.data());
  for_each_view([&](TensorView& view, std::initializer_list<std::int64_t> dims) {
    view = TensorView(next, DType::F32, dims);
    next += padded(view.elements());
  });

  const std::int64_t indices = 6 * rows + (2 + compute::kChoiceWords) * limits.logit_rows +
                               std::int64_t{limits.sequences} * buffers.blocks_max_;
  Result<compute::Buffer> index_buffer =
      backend.allocate(indices * static_cast<std::int64_t>(sizeof(std::int32_t)));
  if (!index_buffer.ok()) return index_buffer.error().in("step indices");
  buffers.indices_ = index_buffer.take();
  buffers.found_ = TensorView(buffers.indices_.data(), DType::I32, {limits.logit_rows});
  std::int64_t edits = 0;
  if (limits.logit_changes > 0) {
    edits = edit_words(limits.logit_rows, limits.logit_changes, config.vocab_size);
    Result<compute::Buffer> edit_buffer =
        backend.allocate(edits * static_cast<std::int64_t>(sizeof(std::int32_t)));
    if (!edit_buffer.ok()) return edit_buffer.error().in("edits of logits");
    buffers.edits_ = edit_buffer.take();
  }
  // Written once, not only reserved: memory that is planned is taken now.
  buffers.staging_.resize(static_cast<std::size_t>(std::max(indices, edits)));
  buffers.host_logits_.resize(static_cast<std::size_t>(buffers.logits_.elements()));
  buffers.pinned_logits_ =
      backend.pin_host(std::as_writable_bytes(std::span(buffers.host_logits_)));
  buffers.host_hidden_.resize(static_cast<std::size_t>(buffers.picked_.elements()));
  // The whole residual stream passes through it where this is not the last part.
  if (!config.has_logits) {
    buffers.pinned_hidden_ =
        backend.pin_host(std::as_writable_bytes(std::span(buffers.host_hidden_)));
  }
  buffers.host_ids_.resize(static_cast<std::size_t>(compute::Backend::kMarks) *
                           static_cast<std::size_t>(limits.logit_rows));
  buffers.pinned_ids_ = backend.pin_host(std::as_writable_bytes(std::span(buffers.host_ids_)));
  const std::int64_t inputs = std::max({config.hidden_dim, config.q_width(), config.ffn_dim});
  const Status reserved = backend.reserve({.rows = rows,
                                           .inputs = inputs,
                                           .context = config.context_length,
                                           .head_dim = config.head_dim});
  if (!reserved.ok()) return reserved.error();
  return buffers;
}

std::int64_t StepBuffers::host_bytes() const {
  return static_cast<std::int64_t>(
      (staging_.capacity() + host_ids_.capacity()) * sizeof(std::int32_t) +
      runs_.capacity() * sizeof(compute::SequenceRun) +
      (host_logits_.capacity() + host_hidden_.capacity()) * sizeof(float));
}

}  // namespace llorch::model
