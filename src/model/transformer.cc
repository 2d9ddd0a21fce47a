#include "model/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace llorch::model {
namespace {

using compute::TensorView;
using tensor::DType;

// Layers of all published models project into at most this many parts (Q, K, V).
constexpr std::size_t kPartsMax = 3;
constexpr std::int64_t kAlignFloats = 16;

std::int64_t padded(std::int64_t elems) {
  return (elems + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

}  // namespace

struct Transformer::Step {
  const KvStorage& cache;
  ForwardObserver* observer;
  TensorView tokens, positions, slots, sequences;  // (rows) I32
  TensorView block_tables;                         // (num_sequences, blocks_max) I32
  TensorView logit_rows;                           // (n) I32; null when no row wants logits
  TensorView hidden_rows;                          // (n) I32; null when no row wants hidden
  TensorView hidden, normed, qkv, merged, ffn;     // StepBuffers' views, cut to this step's rows
  TensorView scores;

  void observe(std::string_view name, std::int32_t layer, const TensorView& view) const {
    if (observer != nullptr) observer->on_tensor(name, layer, view);
  }
};

Result<StepBuffers> StepBuffers::allocate(const ModelConfig& config, const RunnerLimits& limits,
                                          std::int32_t keys_observed, compute::Backend& backend) {
  CHECK(limits.rows > 0 && limits.logit_rows > 0 && limits.sequences > 0 &&
        limits.block_tokens > 0);
  StepBuffers buffers;
  buffers.limits_ = limits;
  buffers.blocks_max_ = (config.context_length + limits.block_tokens - 1) / limits.block_tokens;

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

  const std::int64_t indices =
      5 * rows + limits.logit_rows + std::int64_t{limits.sequences} * buffers.blocks_max_;
  Result<compute::Buffer> index_buffer =
      backend.allocate(indices * static_cast<std::int64_t>(sizeof(std::int32_t)));
  if (!index_buffer.ok()) return index_buffer.error().in("step indices");
  buffers.indices_ = index_buffer.take();
  // Written once, not only reserved: memory that is planned is taken now.
  buffers.staging_.resize(static_cast<std::size_t>(indices));
  buffers.host_logits_.resize(static_cast<std::size_t>(buffers.logits_.elements()));
  buffers.host_hidden_.resize(static_cast<std::size_t>(buffers.picked_.elements()));
  const std::int64_t inputs = std::max({config.hidden_dim, config.q_width(), config.ffn_dim});
  const Status reserved =
      backend.reserve({.rows = rows, .inputs = inputs, .context = config.context_length});
  if (!reserved.ok()) return reserved.error();
  return buffers;
}

std::int64_t StepBuffers::host_bytes() const {
  return static_cast<std::int64_t>(staging_.capacity() * sizeof(std::int32_t) +
                                   (host_logits_.capacity() + host_hidden_.capacity()) *
                                       sizeof(float));
}

// Checks the plan, lays all its integers out in one run and uploads them at once.
Transformer::Step Transformer::begin_step(const BatchPlan& plan, const KvStorage& cache,
                                          StepBuffers& buffers, ForwardObserver* observer) const {
  const auto rows = static_cast<std::int64_t>(plan.rows.size());
  const auto num_sequences = static_cast<std::int64_t>(plan.block_tables.size());
  CHECK(rows > 0 && rows <= buffers.limits_.rows);
  CHECK(num_sequences > 0 && num_sequences <= buffers.limits_.sequences);
  CHECK(cache.block_tokens() == buffers.limits_.block_tokens);

  std::vector<std::int32_t>& staging = buffers.staging_;
  staging.clear();
  for (const BatchRow& row : plan.rows) {
    const auto num_given = static_cast<std::int64_t>(plan.embeddings.size()) / config_.hidden_dim;
    CHECK(row.token >= 0 && row.token < (row.is_embedding ? num_given : config_.vocab_size));
    staging.push_back(row.is_embedding ? 0 : row.token);
  }
  for (const BatchRow& row : plan.rows) {
    CHECK(row.position >= 0 && row.position < config_.context_length);
    staging.push_back(row.position);
  }
  for (const BatchRow& row : plan.rows) {
    CHECK(row.sequence >= 0 && row.sequence < num_sequences);
    const std::span<const std::int32_t> table =
        plan.block_tables[static_cast<std::size_t>(row.sequence)];
    const auto index = static_cast<std::size_t>(row.position / cache.block_tokens());
    CHECK(index < table.size() && table[index] >= 0 && table[index] < cache.num_blocks());
    staging.push_back(table[index] * cache.block_tokens() + row.position % cache.block_tokens());
  }
  for (const BatchRow& row : plan.rows) staging.push_back(row.sequence);
  for (const std::span<const std::int32_t> table : plan.block_tables) {
    CHECK(table.size() <= static_cast<std::size_t>(buffers.blocks_max_));
    staging.insert(staging.end(), table.begin(), table.end());
    staging.resize(staging.size() + static_cast<std::size_t>(buffers.blocks_max_) - table.size());
  }
  const auto stage_rows_where = [&](bool BatchRow::*wanted) {
    std::int64_t count = 0;
    for (std::size_t row = 0; row < plan.rows.size(); ++row) {
      if (!(plan.rows[row].*wanted)) continue;
      staging.push_back(static_cast<std::int32_t>(row));
      ++count;
    }
    return count;
  };
  const std::int64_t num_logits = stage_rows_where(&BatchRow::wants_logits);
  CHECK(num_logits <= buffers.limits_.logit_rows);
  const std::int64_t num_hidden = stage_rows_where(&BatchRow::wants_hidden);
  backend_.upload(std::as_bytes(std::span(staging)), buffers.indices_.data());

  auto* next = static_cast<std::int32_t*>(buffers.indices_.data());
  const auto take = [&next](std::initializer_list<std::int64_t> dims) {
    const TensorView view(next, DType::I32, dims);
    next += view.elements();
    return view;
  };
  Step step{.cache = cache, .observer = observer};
  step.tokens = take({rows});
  step.positions = take({rows});
  step.slots = take({rows});
  step.sequences = take({rows});
  step.block_tables = take({num_sequences, buffers.blocks_max_});
  if (num_logits > 0) step.logit_rows = take({num_logits});
  if (num_hidden > 0) step.hidden_rows = take({num_hidden});
  step.hidden = buffers.hidden_.first_rows(rows);
  step.normed = buffers.normed_.first_rows(rows);
  step.qkv = buffers.qkv_.first_rows(rows);
  step.merged = buffers.merged_.first_rows(rows);
  step.ffn = buffers.ffn_.first_rows(rows);
  if (observer != nullptr && buffers.scores_) step.scores = buffers.scores_.first_rows(rows);
  return step;
}

StepOutput Transformer::forward(const BatchPlan& plan, const KvStorage& cache, StepBuffers& buffers,
                                ForwardObserver* observer) const {
  const Step step = begin_step(plan, cache, buffers, observer);
  embed(step, plan);
  for (std::int32_t layer = 0; layer < config_.num_layers; ++layer) {
    if (plan.abort != nullptr && plan.abort->load(std::memory_order_relaxed)) {
      backend_.synchronize();
      return {.aborted = true};
    }
    attention_block(step, layer);
    mlp_block(step, layer);
    step.observe("block", layer, step.hidden);
  }
  return output(step, buffers);
}

void Transformer::embed(const Step& step, const BatchPlan& plan) const {
  backend_.embed({.table = &weights_.token_embedding,
                  .ids = step.tokens,
                  .out = step.hidden,
                  .scale = config_.embedding_scale});
  const auto width = static_cast<std::size_t>(config_.hidden_dim);
  for (std::size_t row = 0; row < plan.rows.size(); ++row) {
    if (!plan.rows[row].is_embedding) continue;
    const auto index = static_cast<std::size_t>(plan.rows[row].token);
    backend_.upload(std::as_bytes(plan.embeddings.subspan(index * width, width)),
                    static_cast<float*>(step.hidden.data) + row * width);
  }
  if (weights_.position_embedding) {
    backend_.embed({.table = &*weights_.position_embedding,
                    .ids = step.positions,
                    .out = step.hidden,
                    .accumulate = true});
  }
  step.observe("embedding", -1, step.hidden);
}

void Transformer::attention_block(const Step& step, std::int32_t layer) const {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  normalize(step.hidden, weights.attn_norm, step.normed);
  step.observe("attn_norm", layer, step.normed);
  project(step.normed, weights.qkv, step.qkv);
  step.observe("qkv", layer, step.qkv);

  const TensorView q = step.qkv.columns(0, config_.q_width()).split_heads(config_.num_heads);
  const TensorView k =
      step.qkv.columns(config_.q_width(), config_.kv_width()).split_heads(config_.num_kv_heads);
  const TensorView v = step.qkv.columns(config_.q_width() + config_.kv_width(), config_.kv_width())
                           .split_heads(config_.num_kv_heads);
  const LayerAttention attention = config_.layer_attention(layer);
  place_heads(step, q, weights.q_norm, attention.rope);
  place_heads(step, k, weights.k_norm, attention.rope);
  step.observe("attn_in", layer, step.qkv);
  const compute::KvLayer& cache = step.cache.layer(layer);
  backend_.write_kv({.keys = k, .values = v, .slots = step.slots, .cache = cache});
  backend_.attention({.q = q,
                      .cache = cache,
                      .positions = step.positions,
                      .sequences = step.sequences,
                      .block_tables = step.block_tables,
                      .scale = config_.attention_scale > 0
                                   ? config_.attention_scale
                                   : 1.0F / std::sqrt(static_cast<float>(config_.head_dim)),
                      .window = attention.window,
                      .softcap = config_.attention_softcap,
                      .out = step.merged.split_heads(config_.num_heads),
                      .scores = step.scores});
  if (step.scores) step.observe("scores", layer, step.scores);
  step.observe("attn_merged", layer, step.merged);
  add_to_residual(step, step.merged, {weights.attn_out, weights.post_attn_norm, "attn_out", layer});
}

void Transformer::place_heads(const Step& step, const TensorView& heads, const Norm& norm,
                              std::int32_t rope) const {
  if (config_.qk_norm) {
    backend_.rms_norm(
        {.x = heads, .weight = norm.weight, .epsilon = config_.norm_epsilon, .out = heads});
  }
  if (rope < 0) return;
  const Rope& rotation = weights_.ropes[static_cast<std::size_t>(rope)];
  backend_.rope({.x = heads,
                 .positions = step.positions,
                 .frequencies = rotation.frequencies,
                 .style = rotation.style,
                 .magnitude = rotation.magnitude});
}

void Transformer::mlp_block(const Step& step, std::int32_t layer) const {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  normalize(step.hidden, weights.ffn_norm, step.normed);
  step.observe("ffn_norm", layer, step.normed);
  project(step.normed, weights.ffn_in, step.ffn);
  const TensorView inner = step.ffn.columns(0, config_.ffn_dim);
  const TensorView gate_with =
      config_.gated_mlp ? step.ffn.columns(config_.ffn_dim, config_.ffn_dim) : TensorView();
  backend_.activation(
      {.kind = config_.activation, .x = inner, .gate_with = gate_with, .out = inner});
  add_to_residual(step, inner, {weights.ffn_out, weights.post_ffn_norm, "ffn_out", layer});
}

void Transformer::pick_rows(const Step& step, const TensorView& indices,
                            const TensorView& out) const {
  backend_.gather_rows({.x = step.hidden, .indices = indices, .out = out});
  normalize(out, weights_.output_norm, out);
}

StepOutput Transformer::output(const Step& step, StepBuffers& buffers) const {
  StepOutput result;
  const auto fetch = [this](const TensorView& view, std::vector<float>& host) {
    host.resize(static_cast<std::size_t>(view.elements()));
    backend_.download(view.data, std::as_writable_bytes(std::span(host)));
    return std::span<const float>(host);
  };
  if (step.hidden_rows) {
    const TensorView picked = buffers.picked_.first_rows(step.hidden_rows.rows());
    pick_rows(step, step.hidden_rows, picked);
    result.hidden = fetch(picked, buffers.host_hidden_);
  }
  if (step.logit_rows) {
    const TensorView picked = buffers.picked_.first_rows(step.logit_rows.rows());
    const TensorView logits = buffers.logits_.first_rows(step.logit_rows.rows());
    pick_rows(step, step.logit_rows, picked);
    step.observe("output_norm", -1, picked);
    const compute::LinearTarget target{.weight = &weights_.output_matrix(), .out = logits};
    backend_.linear({.x = picked, .targets = {&target, 1}});
    result.logits = fetch(logits, buffers.host_logits_);
    if (config_.logit_softcap > 0) {
      for (float& logit : buffers.host_logits_)
        logit = config_.logit_softcap * std::tanh(logit / config_.logit_softcap);
    }
  }
  if (!step.logit_rows && !step.hidden_rows) backend_.synchronize();
  return result;
}

void Transformer::normalize(const TensorView& x, const Norm& norm, const TensorView& out) const {
  if (config_.norm == NormKind::LayerNorm) {
    backend_.layer_norm({.x = x,
                         .weight = norm.weight,
                         .bias = norm.bias,
                         .epsilon = config_.norm_epsilon,
                         .out = out});
  } else {
    backend_.rms_norm({.x = x, .weight = norm.weight, .epsilon = config_.norm_epsilon, .out = out});
  }
}

// One input through one or several matrices whose outputs stand side by side in `out`.
void Transformer::project(const TensorView& x, std::span<const Linear> parts,
                          const TensorView& out) const {
  CHECK(!parts.empty() && parts.size() <= kPartsMax);
  compute::LinearTarget targets[kPartsMax];
  std::int64_t column = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const std::int64_t width = parts[part].weight.rows;
    targets[part] = {
        .weight = &parts[part].weight, .bias = parts[part].bias, .out = out.columns(column, width)};
    column += width;
  }
  CHECK(column == out.dims[1]);
  backend_.linear({.x = x, .targets = {targets, parts.size()}});
}

void Transformer::add_to_residual(const Step& step, const TensorView& x,
                                  const Addition& addition) const {
  const bool normed = config_.post_norms;
  compute::LinearTarget target{
      .weight = &addition.linear.weight, .bias = addition.linear.bias, .out = step.normed};
  compute::RmsNormArgs norm{.x = step.normed,
                            .weight = addition.post_norm.weight,
                            .epsilon = config_.norm_epsilon,
                            .out = step.normed};
  if (step.observer != nullptr) {
    // The residual swallows this result, so an observer gets it computed once more on its own.
    backend_.linear({.x = x, .targets = {&target, 1}});
    if (normed) backend_.rms_norm(norm);
    step.observe(addition.observed_name, addition.layer, step.normed);
  }
  if (normed) {
    backend_.linear({.x = x, .targets = {&target, 1}});
    norm.out = step.hidden;
    norm.accumulate = true;
    backend_.rms_norm(norm);
    return;
  }
  target.out = step.hidden;
  target.accumulate = true;
  backend_.linear({.x = x, .targets = {&target, 1}});
}

}  // namespace llorch::model
