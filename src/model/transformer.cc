#include "model/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "model/choices.h"
#include "model/staged_rows.h"

namespace llorch::model {
namespace {

using compute::TensorView;
using tensor::DType;

// Layers of all published models project into at most this many parts (Q, K, V).
constexpr std::size_t kPartsMax = 3;
// And turn with at most this many tables of frequencies (Gemma 3: local and global layers).
constexpr std::size_t kRopesMax = 4;

}  // namespace

struct Transformer::Step {
  const KvStorage& cache;
  ForwardObserver* observer;
  TensorView tokens, positions, slots, sequences;  // (rows) I32
  TensorView block_tables;                         // (num_sequences, blocks_max) I32
  TensorView own_rows;                             // (n) I32: rows with embeddings of their own
  TensorView logit_rows;                           // (n) I32; null when no row wants logits
  TensorView hidden_rows;                          // (n) I32; null when no row wants hidden
  TensorView hidden, normed, qkv, merged, ffn;     // StepBuffers' views, cut to this step's rows
  TensorView picked, logits;                       // cut to the rows that want them, or null
  TensorView found;                // (logit_rows) I32: ids of the step before, or null
  TensorView argmax;               // (n) I32 of the last n logits, or null; takes their place
  TensorView temperatures, draws;  // of those, or null where none is drawn
  TensorView rules;                // of those, or null where none has more than a temperature
  bool chooses_later = false;
  TensorView scores;
  std::span<const TensorView> angles;  // not cut
  std::span<const compute::SequenceRun> runs;

  // Rows that want ids come behind those that want logits.
  TensorView logits_to_choose_of() const {
    return logits.rows_from(logits.rows() - argmax.rows(), argmax.rows());
  }
  void observe(std::string_view name, std::int32_t layer, const TensorView& view) const {
    if (observer != nullptr) observer->on_tensor(name, layer, view);
  }
};

// One input through one or several matrices whose outputs stand side by side.
struct Transformer::Targets {
  Targets(std::span<const Linear> parts, const TensorView& out) : count(parts.size()) {
    CHECK(!parts.empty() && count <= kPartsMax);
    std::int64_t column = 0;
    for (std::size_t part = 0; part < count; ++part) {
      const std::int64_t width = parts[part].weight.rows;
      items[part] = {.weight = &parts[part].weight,
                     .bias = parts[part].bias,
                     .out = out.columns(column, width)};
      column += width;
    }
    CHECK(column == out.dims[1]);
  }
  std::span<const compute::LinearTarget> all() const { return {items, count}; }

  compute::LinearTarget items[kPartsMax];
  std::size_t count;
};

// Checks the plan, lays all its integers out in one run and uploads them at once.
Transformer::Step Transformer::stage(const BatchPlan& plan, const KvStorage& cache,
                                     StepBuffers& buffers, ForwardObserver* observer) const {
  const auto rows = static_cast<std::int64_t>(plan.rows.size());
  const auto num_sequences = static_cast<std::int64_t>(plan.block_tables.size());
  CHECK(rows > 0 && rows <= buffers.limits_.rows);
  CHECK(num_sequences > 0 && num_sequences <= buffers.limits_.sequences);
  CHECK(cache.block_tokens() == buffers.limits_.block_tokens);

  std::vector<std::int32_t>& staging = buffers.staging_;
  staging.clear();
  const bool has_last = buffers.num_flights_ > 0;
  stage_rows(
      plan, config_, cache,
      has_last ? static_cast<std::int64_t>(buffers.flight_at(buffers.num_flights_ - 1).num_ids) : 0,
      staging);
  buffers.runs_.clear();
  for (const BatchRow& row : plan.rows) {
    staging.push_back(row.sequence);
    compute::add_row(buffers.runs_, row.sequence, row.position);
  }
  const std::int64_t table_width = widest_table(plan, buffers.blocks_max_);
  for (const std::span<const std::int32_t> table : plan.block_tables) {
    staging.insert(staging.end(), table.begin(), table.end());
    staging.resize(staging.size() + static_cast<std::size_t>(table_width) - table.size());
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
  const std::int64_t num_own = stage_rows_where(&BatchRow::is_embedding);
  const std::int64_t num_whole = stage_rows_where(&BatchRow::wants_logits);
  const std::int64_t num_argmax = stage_rows_where(&BatchRow::wants_argmax);
  const std::int64_t num_logits = num_whole + num_argmax;
  CHECK(num_logits <= buffers.limits_.logit_rows);
  const std::int64_t num_hidden = stage_rows_where(&BatchRow::wants_hidden);
  const Choice choice = stage_choices(plan, config_.vocab_size, staging);
  // Behind the ids that the step before found: this one may look them up.
  auto* next = static_cast<std::int32_t*>(buffers.indices_.data()) + buffers.found_.elements();
  backend_.upload(std::as_bytes(std::span(staging)), next);

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
  step.block_tables = take({num_sequences, table_width});
  if (num_own > 0) step.own_rows = take({num_own});
  if (num_logits > 0) step.logit_rows = take({num_logits});
  if (num_hidden > 0) step.hidden_rows = take({num_hidden});
  if (choice == Choice::ByRule) step.rules = take({num_argmax, compute::kChoiceWords});
  if (choice == Choice::Drawn) {
    step.temperatures = take({num_argmax});
    step.temperatures.dtype = DType::F32;
    step.draws = take({num_argmax, 2});
  }
  if (buffers.limits_.steps_in_flight > 1) step.found = buffers.found_;
  if (num_argmax > 0) step.argmax = buffers.found_.first_rows(num_argmax);
  step.chooses_later = plan.chooses_later;
  step.hidden = buffers.hidden_.first_rows(rows);
  step.normed = buffers.normed_.first_rows(rows);
  step.qkv = buffers.qkv_.first_rows(rows);
  step.merged = buffers.merged_.first_rows(rows);
  step.ffn = buffers.ffn_.first_rows(rows);
  if (num_hidden > 0) step.picked = buffers.picked_.first_rows(num_hidden);
  if (num_logits > 0) step.logits = buffers.logits_.first_rows(num_logits);
  step.angles = buffers.angles_;
  step.runs = buffers.runs_;
  if (observer != nullptr && buffers.scores_) step.scores = buffers.scores_.first_rows(rows);
  return step;
}

void Transformer::submit(const BatchPlan& plan, const KvStorage& cache, StepBuffers& buffers,
                         ForwardObserver* observer, std::span<const float>* stream) const {
  CHECK(stream != nullptr || (config_.embeds && config_.has_logits), "part of a model, run alone");
  CHECK(buffers.num_flights_ < buffers.limits_.steps_in_flight, "steps in flight");
  const bool is_behind_aborted =
      buffers.num_flights_ > 0 && buffers.flight_at(buffers.num_flights_ - 1).aborted;
  const int place = buffers.place_of(buffers.num_flights_);
  StepBuffers::Flight flight{.aborted = true};
  if (!is_behind_aborted) flight = run({plan, cache, observer, stream}, buffers, place);
  buffers.flights_[static_cast<std::size_t>(place)] = flight;
  ++buffers.num_flights_;
}

StepOutput Transformer::collect(StepBuffers& buffers) const {
  CHECK(buffers.num_flights_ > 0, "nothing was submitted");
  const int place = buffers.place_of(0);
  const StepBuffers::Flight flight = buffers.flight_at(0);
  buffers.first_flight_ = buffers.place_of(1);
  --buffers.num_flights_;
  if (flight.aborted) return {.aborted = true};
  backend_.wait(place);
  return {.logits = std::span(buffers.host_logits_).first(flight.num_logits),
          .argmax = buffers.ids_at(place).first(flight.num_ids),
          .hidden = std::span(buffers.host_hidden_).first(flight.num_hidden)};
}

StepBuffers::Flight Transformer::run(const Submission& submission, StepBuffers& buffers,
                                     int place) const {
  const auto& [plan, cache, observer, stream] = submission;
  const Step step = stage(plan, cache, buffers, observer);
  const bool chooses = step.argmax && !step.chooses_later;
  const compute::StepShape shape{.rows = step.hidden.rows(),
                                 .logit_rows = step.logits ? step.logits.rows() : 0,
                                 .argmax_rows = chooses ? step.argmax.rows() : 0,
                                 .draws = static_cast<bool>(step.draws),
                                 .chooses = chooses && step.rules,
                                 .hidden_rows = step.picked ? step.picked.rows() : 0,
                                 .given_rows = step.own_rows ? step.own_rows.rows() : 0,
                                 .sequences = step.block_tables.rows(),
                                 .table_width = step.block_tables.dims[1],
                                 .runs = step.runs,
                                 .owner = &buffers,
                                 .observed = observer != nullptr,
                                 .abort = plan.abort};
  if (config_.embeds) {
    upload_embeddings(step, plan);
  } else {
    send_stream(step, *stream);
  }
  bool complete = true;
  do {
    if (backend_.begin_step(shape)) continue;
    prepare(step, plan);
    complete = run_layers(step, shape);
    if (complete && config_.has_logits) finish(step);
  } while (!backend_.end_step());
  if (!complete) {
    backend_.synchronize();
    return {.aborted = true};
  }
  if (config_.has_logits) return fetch(step, buffers, place);
  *stream = fetch_stream(step, buffers);
  backend_.mark(place);
  return {};
}

void Transformer::send_stream(const Step& step, std::span<const float> stream) const {
  CHECK(std::ssize(stream) == step.hidden.elements());
  backend_.upload(std::as_bytes(stream), step.hidden.data);
}

std::span<const float> Transformer::fetch_stream(const Step& step, StepBuffers& buffers) const {
  const auto stream =
      std::span(buffers.host_hidden_).first(static_cast<std::size_t>(step.hidden.elements()));
  backend_.download(step.hidden.data, std::as_writable_bytes(stream));
  return stream;
}

bool Transformer::run_layers(const Step& step, const compute::StepShape& shape) const {
  for (std::int32_t layer = 0; layer < config_.num_layers; ++layer) {
    if (backend_.aborted(shape)) return false;
    attention_block(step, layer);
    mlp_block(step, layer);
    step.observe("block", layer, step.hidden);
  }
  return true;
}

// Rows with embeddings of their own, each in its place, where nothing of this step is yet.
void Transformer::upload_embeddings(const Step& step, const BatchPlan& plan) const {
  const auto width = static_cast<std::size_t>(config_.hidden_dim);
  for (std::size_t row = 0; row < plan.rows.size(); ++row) {
    if (!plan.rows[row].is_embedding) continue;
    const auto index = static_cast<std::size_t>(plan.rows[row].token);
    backend_.upload(std::as_bytes(plan.embeddings.subspan(index * width, width)),
                    static_cast<float*>(step.normed.data) + row * width);
  }
}

// The beginning of the residual stream, and the angles of rotation.
void Transformer::embed(const Step& step, const BatchPlan& plan,
                        std::span<const compute::RopeAnglesArgs> angles) const {
  backend_.begin_rows({.embed = {.table = &weights_.token_embedding,
                                 .ids = step.tokens,
                                 .out = step.hidden,
                                 .scale = config_.embedding_scale},
                       .found = step.found,
                       .angles = angles});
  std::int64_t taken = 0;  // of own_rows
  for (std::size_t end = 0; end < plan.rows.size();) {
    const std::size_t begin = end;
    while (end < plan.rows.size() && plan.rows[end].is_embedding) ++end;
    if (const auto count = static_cast<std::int64_t>(end - begin); count > 0) {
      backend_.gather_rows({.x = step.normed,
                            .indices = step.own_rows.rows_from(taken, count),
                            .out = step.hidden.rows_from(static_cast<std::int64_t>(begin), count)});
      taken += count;
    } else {
      ++end;
    }
  }
  if (weights_.position_embedding) {
    backend_.embed({.table = &*weights_.position_embedding,
                    .ids = step.positions,
                    .out = step.hidden,
                    .accumulate = true});
  }
  step.observe("embedding", -1, step.hidden);
}

// What all layers share: the residual stream's beginning and the angles of rotation.
void Transformer::prepare(const Step& step, const BatchPlan& plan) const {
  compute::RopeAnglesArgs angles[kRopesMax];
  const std::size_t count = weights_.ropes.size();
  CHECK(count <= kRopesMax);
  for (std::size_t i = 0; i < count; ++i) {
    const Rope& rope = weights_.ropes[i];
    angles[i] = {.positions = step.positions,
                 .frequencies = rope.frequencies,
                 .magnitude = rope.magnitude,
                 .out = step.angles[i].first_rows(step.hidden.rows())};
  }
  if (config_.embeds) return embed(step, plan, {angles, count});
  for (const compute::RopeAnglesArgs& some : std::span(angles, count)) backend_.rope_angles(some);
}

void Transformer::attention_block(const Step& step, std::int32_t layer) const {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const Targets targets(weights.qkv, step.qkv);
  const TensorView q = step.qkv.columns(0, config_.q_width()).split_heads(config_.num_heads);
  const TensorView k =
      step.qkv.columns(config_.q_width(), config_.kv_width()).split_heads(config_.num_kv_heads);
  const TensorView v = step.qkv.columns(config_.q_width() + config_.kv_width(), config_.kv_width())
                           .split_heads(config_.num_kv_heads);
  const LayerAttention attention = config_.layer_attention(layer);
  const compute::KvLayer& cache = step.cache.layer(layer);
  compute::ProjectHeadsArgs project{.product = {.x = step.hidden,
                                                .norm = row_norm(weights.attn_norm),
                                                .normed = step.normed,
                                                .targets = targets.all()},
                                    .heads = {.q = q,
                                              .k = k,
                                              .v = v,
                                              .epsilon = config_.norm_epsilon,
                                              .slots = step.slots,
                                              .cache = cache}};
  compute::PlaceHeadsArgs& heads = project.heads;
  if (config_.qk_norm) {
    heads.q_norm = weights.q_norm.weight;
    heads.k_norm = weights.k_norm.weight;
  }
  if (attention.rope >= 0) {
    const auto rope = static_cast<std::size_t>(attention.rope);
    heads.angles = step.angles[rope].first_rows(step.hidden.rows());
    heads.style = weights_.ropes[rope].style;
  }
  if (step.observer == nullptr) {
    backend_.project_heads(project);
  } else {
    observe_norm(step, weights.attn_norm, "attn_norm", layer);
    backend_.norm_linear(project.product);
    step.observe("qkv", layer, step.qkv);
    backend_.place_heads(heads);
    step.observe("attn_in", layer, step.qkv);
  }
  backend_.attention({.q = q,
                      .cache = cache,
                      .positions = step.positions,
                      .sequences = step.sequences,
                      .block_tables = step.block_tables,
                      .runs = step.runs,
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

void Transformer::mlp_block(const Step& step, std::int32_t layer) const {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  observe_norm(step, weights.ffn_norm, "ffn_norm", layer);
  const Targets targets(weights.ffn_in, step.ffn);
  backend_.mlp_in({.product = {.x = step.hidden,
                               .norm = row_norm(weights.ffn_norm),
                               .normed = step.normed,
                               .targets = targets.all()},
                   .kind = config_.activation,
                   .gated = config_.gated_mlp,
                   .out = step.ffn});
  const TensorView inner = step.ffn.columns(0, config_.ffn_dim);
  step.observe("ffn_inner", layer, inner);
  add_to_residual(step, inner, {weights.ffn_out, weights.post_ffn_norm, "ffn_out", layer});
}

void Transformer::pick_rows(const Step& step, const TensorView& indices,
                            const TensorView& out) const {
  backend_.gather_rows({.x = step.hidden, .indices = indices, .out = out});
  backend_.norm(out, row_norm(weights_.output_norm), out);
}

// What the step is for, still on the device.
void Transformer::finish(const Step& step) const {
  if (step.hidden_rows) pick_rows(step, step.hidden_rows, step.picked);
  if (!step.logit_rows) return;
  const TensorView picked = step.normed.first_rows(step.logit_rows.rows());
  if (step.observer != nullptr) {
    pick_rows(step, step.logit_rows, picked);
    step.observe("output_norm", -1, picked);
  }
  backend_.logits({.x = step.hidden,
                   .indices = step.logit_rows,
                   .norm = row_norm(weights_.output_norm),
                   .picked = picked,
                   .weight = &weights_.output_matrix(),
                   .out = step.logits,
                   .softcap = config_.logit_softcap});
  if (!step.argmax || step.chooses_later) return;
  const TensorView logits = step.logits_to_choose_of();
  if (step.rules) {
    backend_.choose({.x = logits, .rules = step.rules, .out = step.argmax});
  } else if (step.draws) {
    backend_.draw(
        {.x = logits, .temperatures = step.temperatures, .draws = step.draws, .out = step.argmax});
  } else {
    backend_.argmax({.x = logits, .out = step.argmax});
  }
}

void Transformer::choose(std::span<const RowEdits> edits, StepBuffers& buffers) const {
  CHECK(buffers.num_flights_ > 0, "nothing was submitted");
  const int place = buffers.place_of(buffers.num_flights_ - 1);
  StepBuffers::Flight& flight = buffers.flights_[static_cast<std::size_t>(place)];
  if (flight.aborted) return;
  CHECK(flight.argmax && flight.argmax.rows() == std::ssize(edits));
  buffers.staging_.clear();
  const StagedEdits staged = stage_edits(edits, config_.vocab_size, buffers.staging_);
  CHECK(staged.changes <= buffers.limits_.logit_changes);
  auto* next = static_cast<std::int32_t*>(buffers.edits_.data());
  if (staged.changes + staged.masks > 0) {
    backend_.upload(std::as_bytes(std::span(buffers.staging_)), next);
    const auto take = [&next](std::int64_t rows, std::int64_t words) {
      if (rows == 0) return TensorView();
      const TensorView view(next, DType::I32, {rows, words});
      next += view.elements();
      return view;
    };
    compute::EditLogitsArgs args{.x = flight.logits};
    args.rules = take(staged.rules, compute::kEditWords);
    args.changes = take(staged.changes, compute::kChangeWords);
    args.masks = take(staged.masks, compute::mask_words(config_.vocab_size));
    backend_.edit_logits(args);
  }
  backend_.choose({.x = flight.logits, .rules = flight.rules, .out = flight.argmax});
  const auto ids = buffers.ids_at(place).first(edits.size());
  backend_.download_later(flight.argmax.data, std::as_writable_bytes(ids));
  backend_.mark(place);
  flight.num_ids = ids.size();
  flight.argmax = {};
}

// What the step leaves for the host, on its way there.
StepBuffers::Flight Transformer::fetch(const Step& step, StepBuffers& buffers, int place) const {
  const auto download = [this]<class T>(const TensorView& view, std::span<T> host) {
    const auto wanted = host.first(static_cast<std::size_t>(view.elements()));
    if (!wanted.empty()) backend_.download_later(view.data, std::as_writable_bytes(wanted));
    return wanted.size();
  };
  const std::int64_t num_whole = step.logits.rows() - step.argmax.rows();
  StepBuffers::Flight flight{
      .num_logits = download(step.logits.first_rows(num_whole), std::span(buffers.host_logits_)),
      .num_ids = step.chooses_later ? 0 : download(step.argmax, buffers.ids_at(place)),
      .num_hidden = download(step.picked, std::span(buffers.host_hidden_))};
  if (step.chooses_later) {
    flight.logits = step.logits_to_choose_of();
    flight.rules = step.rules;
    flight.argmax = step.argmax;
  }
  backend_.mark(place);
  return flight;
}

compute::RowNorm Transformer::row_norm(const Norm& norm) const {
  return {.kind = config_.norm,
          .weight = norm.weight,
          .bias = norm.bias,
          .epsilon = config_.norm_epsilon};
}

void Transformer::observe_norm(const Step& step, const Norm& norm, std::string_view name,
                               std::int32_t layer) const {
  if (step.observer == nullptr) return;
  backend_.norm(step.hidden, row_norm(norm), step.normed);
  step.observe(name, layer, step.normed);
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
