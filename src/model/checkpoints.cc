#include "model/checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "model/rounding_sides.h"
#include "tensor/half.h"

namespace llorch::model {
namespace {

using compute::TensorView;

constexpr std::array<Checkpoint, 12> kCheckpoints = {{
    {1, "first norm", "attn_norm.0", 1e-5},
    {2, "QKV", "qkv.0", 1e-4},
    {3, "KV cache", "", 0},
    {4, "attention scores", "scores.0", 1e-4},
    {5, "attention output", "attn_out.0", 1e-4},
    {6, "FFN", "ffn_out.0", 1e-4},
    {7, "first block", "block.0", 1e-4},
    {8, "full logits", "logits", 1e-3},
    {9, "selected logits", "", 0},
    {10, "argmax", "", 0},
    {11, "softmax", "softmax", 1e-6},
    {12, "end to end", "", 0},
}};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

HostTensor download(compute::Backend& backend, const TensorView& view) {
  CHECK(view.dtype == tensor::DType::F32);
  HostTensor host;
  host.shape.assign(view.dims, view.dims + view.rank);
  host.values.resize(static_cast<std::size_t>(view.elements()));
  const auto row_elems = static_cast<std::size_t>(view.row_elements());
  for (std::int64_t row = 0; row < view.rows(); ++row) {
    const std::span<float> out(host.values.data() + static_cast<std::size_t>(row) * row_elems,
                               row_elems);
    backend.download(view.row<float>(row), std::as_writable_bytes(out));
  }
  return host;
}

class Recorder final : public ForwardObserver {
 public:
  Recorder(compute::Backend& backend, Trace& trace, RoundingSides* sides)
      : backend_(backend), trace_(trace), sides_(sides) {}

  // Scores beyond the prompt are not there; keep the (rows, heads, rows) that are.
  void on_tensor(std::string_view name, std::int32_t layer, const TensorView& view) override {
    if (!recording_) return;
    HostTensor host = download(backend_, view);
    if (name == "scores") host = cut_keys(host);
    const std::string full = layer < 0 ? std::string(name) : fmt::format("{}.{}", name, layer);
    if (sides_ != nullptr) sides_->saw(full, view);
    trace_.tensors[full] = std::move(host);
  }
  void stop() {
    recording_ = false;
    if (sides_ != nullptr) sides_->stop();
  }

 private:
  static HostTensor cut_keys(const HostTensor& scores) {
    const std::int64_t rows = scores.shape[0];
    const std::int64_t keys = scores.shape[2];
    HostTensor cut{{rows, scores.shape[1], rows}, {}};
    for (std::int64_t pair = 0; pair < rows * scores.shape[1]; ++pair) {
      const auto begin = scores.values.begin() + pair * keys;
      cut.values.insert(cut.values.end(), begin, begin + rows);
    }
    return cut;
  }

  compute::Backend& backend_;
  Trace& trace_;
  RoundingSides* sides_;  // may be null
  bool recording_ = true;
};

std::vector<std::int32_t> first_blocks(const ModelRunner& runner) {
  std::vector<std::int32_t> blocks(static_cast<std::size_t>(runner.limits().num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  const std::int32_t needed =
      (runner.context_length() + runner.limits().block_tokens - 1) / runner.limits().block_tokens;
  blocks.resize(std::min(blocks.size(), static_cast<std::size_t>(needed)));
  return blocks;
}

BatchPlan whole_prompt(std::span<const std::int32_t> ids, std::span<const std::int32_t> blocks,
                       bool all_logits) {
  BatchPlan plan;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    plan.rows.push_back({.token = ids[i],
                         .position = static_cast<std::int32_t>(i),
                         .sequence = 0,
                         .wants_logits = all_logits || i + 1 == ids.size()});
  }
  plan.block_tables.push_back(blocks);
  return plan;
}

HostTensor softmax_of(compute::Backend& backend, std::span<const float> logits) {
  const auto count = static_cast<std::int64_t>(logits.size());
  compute::Buffer buffer =
      backend.allocate(count * static_cast<std::int64_t>(sizeof(float))).take();
  backend.upload(std::as_bytes(logits), buffer.data());
  const TensorView view(buffer.data(), tensor::DType::F32, {1, count});
  backend.softmax({.x = view, .out = view});
  HostTensor host = download(backend, view);
  host.shape = {count};
  return host;
}

// Keys or values of the prompt as the blocks hold them: (tokens, kv_heads * head_dim), in the order
// of qkv rows.
HostTensor read_cache(compute::Backend& backend, const TensorView& side, std::int64_t tokens) {
  const std::int64_t heads = side.dims[1];
  const std::int64_t block_tokens = side.dims[2];
  const std::int64_t head_dim = side.dims[3];
  const HostTensor all = download(backend, side);
  HostTensor out{{tokens, heads * head_dim}, {}};
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t block = token / block_tokens;  // whole_prompt uses blocks 0, 1, 2 …
      const auto begin = all.values.begin() +
                         ((block * heads + head) * block_tokens + token % block_tokens) * head_dim;
      out.values.insert(out.values.end(), begin, begin + head_dim);
    }
  }
  return out;
}

CheckpointResult result(const Checkpoint& checkpoint, double max_error, std::string difference) {
  return {checkpoint, difference.empty(), max_error, std::move(difference)};
}

double allowed_at(const Checkpoint& checkpoint, double expected) {
  if (checkpoint.tolerance == 0) return 0;
  return std::isfinite(expected) ? std::max(checkpoint.tolerance, std::abs(expected) * kOfItself)
                                 : checkpoint.tolerance;
}

CheckpointResult compare_tensors(const Checkpoint& checkpoint, const HostTensor* ours,
                                 const HostTensor* reference) {
  if (ours == nullptr) return result(checkpoint, kInfinity, "not recorded");
  if (reference == nullptr) return result(checkpoint, kInfinity, "no reference");
  if (ours->shape != reference->shape) {
    return result(checkpoint, kInfinity,
                  fmt::format("shape [{}], expected [{}]", fmt::join(ours->shape, ", "),
                              fmt::join(reference->shape, ", ")));
  }
  double max_error = 0;
  double worst_excess = 0;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < ours->values.size(); ++i) {
    const double a = ours->values[i];
    const double b = reference->values[i];
    double error = std::abs(a - b);
    if (std::isinf(a) && a == b) error = 0;  // masked on both sides
    if (std::isnan(error)) error = kInfinity;
    max_error = std::max(max_error, error);
    const double excess = error - allowed_at(checkpoint, b);
    if (excess > worst_excess) {
      worst_excess = excess;
      worst = i;
    }
  }
  if (worst_excess == 0) return result(checkpoint, max_error, {});
  return result(
      checkpoint, max_error,
      fmt::format("element {} is {}, expected {} within {}", worst, ours->values[worst],
                  reference->values[worst], allowed_at(checkpoint, reference->values[worst])));
}

const HostTensor* find(const Trace& trace, std::string_view name) {
  const auto found = trace.tensors.find(name);
  return found == trace.tensors.end() ? nullptr : &found->second;
}

// Every layer's cache holds, bit for bit, the keys and values that attention was given; and those
// agree with the reference's cache within the projection's tolerance.
CheckpointResult compare_cache(const Checkpoint& checkpoint, const Trace& ours,
                               const Trace& reference) {
  for (int layer = 0;; ++layer) {
    const HostTensor* qkv = find(ours, fmt::format("attn_in.{}", layer));
    if (qkv == nullptr) {
      return layer > 0 ? result(checkpoint, 0, {}) : result(checkpoint, kInfinity, "not recorded");
    }
    std::int64_t column_end = qkv->shape[1];
    for (const std::string_view side : {"cache_v", "cache_k"}) {
      const std::string name = fmt::format("{}.{}", side, layer);
      const HostTensor* cached = find(ours, name);
      if (cached == nullptr) return result(checkpoint, kInfinity, name + " not recorded");
      const std::int64_t width = cached->shape[1];
      column_end -= width;
      HostTensor projected{cached->shape, {}};
      for (std::int64_t row = 0; row < cached->shape[0]; ++row) {
        const auto begin = qkv->values.begin() + row * qkv->shape[1] + column_end;
        projected.values.insert(projected.values.end(), begin, begin + width);
      }
      CheckpointResult exact = compare_tensors(checkpoint, cached, &projected);
      if (!exact.passed) return result(checkpoint, exact.max_error, name + ": " + exact.difference);
      Checkpoint within = checkpoint;
      within.tolerance = kCheckpoints[1].tolerance;
      if (layer > 0)
        within.tolerance = kCheckpoints[7].tolerance;  // errors of the layers below add up
      exact = compare_tensors(within, cached, find(reference, name));
      if (!exact.passed)
        return result(checkpoint, exact.max_error,
                      name + " against reference: " + exact.difference);
    }
  }
}

// Asking for the last row's logits alone gives exactly the last row of all logits.
CheckpointResult compare_selected(const Checkpoint& checkpoint, const Trace& ours) {
  const HostTensor* all = find(ours, "logits");
  const HostTensor* selected = find(ours, "selected_logits");
  if (all == nullptr || selected == nullptr) return result(checkpoint, kInfinity, "not recorded");
  const std::int64_t vocab = all->shape[1];
  const HostTensor last{{vocab}, {all->values.end() - vocab, all->values.end()}};
  return compare_tensors(checkpoint, selected, &last);
}

// In double precision.
HostTensor exact_softmax(const HostTensor& logits) {
  HostTensor exact{logits.shape, {}};
  if (logits.values.empty()) return exact;
  const double largest = *std::max_element(logits.values.begin(), logits.values.end());
  double sum = 0;
  for (const float logit : logits.values) sum += std::exp(logit - largest);
  for (const float logit : logits.values)
    exact.values.push_back(static_cast<float>(std::exp(logit - largest) / sum));
  return exact;
}

// Probabilities of the very logits that were given. What those may differ from the reference's by,
// which the rungs below judge, is more than this one's tolerance where a token has about half of
// all.
CheckpointResult compare_softmax(const Checkpoint& checkpoint, const Trace& ours) {
  const HostTensor* logits = find(ours, "selected_logits");
  if (logits == nullptr) return result(checkpoint, kInfinity, "not recorded");
  const HostTensor exact = exact_softmax(*logits);
  return compare_tensors(checkpoint, find(ours, checkpoint.tensor), &exact);
}

CheckpointResult compare_ids(const Checkpoint& checkpoint, std::span<const std::int32_t> ours,
                             std::span<const std::int32_t> reference) {
  if (std::ranges::equal(ours, reference)) return result(checkpoint, 0, {});
  return result(
      checkpoint, kInfinity,
      fmt::format("ids {}, expected {}", fmt::join(ours, " "), fmt::join(reference, " ")));
}

}  // namespace

std::span<const Checkpoint> checkpoints() {
  return kCheckpoints;
}

std::vector<CheckpointResult> compare(const Trace& ours, const Trace& reference) {
  std::vector<CheckpointResult> results;
  for (const Checkpoint& checkpoint : kCheckpoints) {
    switch (checkpoint.number) {
      case 3:
        results.push_back(compare_cache(checkpoint, ours, reference));
        break;
      case 9:
        results.push_back(compare_selected(checkpoint, ours));
        break;
      case 10:
        results.push_back(compare_ids(checkpoint, {&ours.argmax, 1}, {&reference.argmax, 1}));
        break;
      case 11:
        results.push_back(compare_softmax(checkpoint, ours));
        break;
      case 12:
        results.push_back(compare_ids(checkpoint, ours.greedy_ids, reference.greedy_ids));
        break;
      default:
        results.push_back(compare_tensors(checkpoint, find(ours, checkpoint.tensor),
                                          find(reference, checkpoint.tensor)));
    }
  }
  return results;
}

Result<Trace> record_trace(const std::shared_ptr<const LoadedModel>& model,
                           compute::Backend& backend, std::span<const std::int32_t> ids,
                           std::int32_t greedy_tokens, RoundingSides* sides) {
  const ModelConfig& config = model->config;
  CHECK(!ids.empty() && ids.size() + static_cast<std::size_t>(greedy_tokens) <=
                            static_cast<std::size_t>(config.context_length));
  Trace trace;
  trace.ids.assign(ids.begin(), ids.end());
  Recorder recorder(backend, trace, sides);
  RunnerOptions options;
  const auto rows = static_cast<std::int32_t>(ids.size());
  options.limits = {.rows = rows, .logit_rows = rows, .sequences = 1, .block_tokens = 16};
  options.limits.num_blocks = (rows + greedy_tokens + 15) / 16;
  options.observer = &recorder;
  Result<std::unique_ptr<TransformerRunner>> made =
      TransformerRunner::make(model, backend, options);
  if (!made.ok()) return made.error();
  TransformerRunner& runner = *made.value();
  const std::vector<std::int32_t> blocks = first_blocks(runner);

  const std::span<const float> logits =
      runner.forward(whole_prompt(ids, blocks, /*all_logits=*/true)).logits;
  trace.tensors["logits"] = {{rows, config.vocab_size}, {logits.begin(), logits.end()}};
  for (std::int32_t layer = 0; layer < config.num_layers; ++layer) {
    const compute::KvLayer& cache = runner.cache().layer(layer);
    trace.tensors[fmt::format("cache_k.{}", layer)] = read_cache(backend, cache.keys, rows);
    trace.tensors[fmt::format("cache_v.{}", layer)] = read_cache(backend, cache.values, rows);
  }
  recorder.stop();
  const std::span<const float> selected =
      runner.forward(whole_prompt(ids, blocks, /*all_logits=*/false)).logits;
  trace.tensors["selected_logits"] = {{config.vocab_size}, {selected.begin(), selected.end()}};
  trace.argmax = argmax(selected);
  trace.tensors["softmax"] = softmax_of(backend, selected);
  trace.greedy_ids = generate_greedy(runner, ids, {.count = greedy_tokens});
  return trace;
}

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<std::int32_t> generate_greedy(ModelRunner& runner, std::span<const std::int32_t> prompt,
                                          const GreedyOptions& options) {
  CHECK(!prompt.empty());
  std::vector<std::int32_t> own_blocks;
  std::span<const std::int32_t> blocks = options.blocks;
  if (blocks.empty()) {
    own_blocks = first_blocks(runner);
    blocks = own_blocks;
  }
  const std::size_t chunk =
      static_cast<std::size_t>(options.chunk_rows > 0 ? options.chunk_rows : runner.limits().rows);
  std::vector<std::int32_t> ids(prompt.begin(), prompt.end());
  const std::size_t length = prompt.size() + static_cast<std::size_t>(options.count);
  std::size_t computed = 0;
  while (ids.size() < length) {
    // The same catching-up for the prompt's chunks and for each generated token.
    BatchPlan plan;
    plan.block_tables.push_back(blocks);
    const std::size_t end = std::min(ids.size(), computed + chunk);
    for (; computed < end; ++computed) {
      plan.rows.push_back({.token = ids[computed],
                           .position = static_cast<std::int32_t>(computed),
                           .sequence = 0,
                           .wants_logits = computed + 1 == ids.size()});
    }
    const std::span<const float> logits = runner.forward(plan).logits;
    if (!logits.empty()) ids.push_back(argmax(logits));
  }
  return ids;
}

}  // namespace llorch::model
