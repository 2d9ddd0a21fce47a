// One step of work for a model: rows of any number of sequences, each a token at a position.
// This header and runner.h are all that the engine may see of a model.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace llorch::model {

struct BatchRow {
  std::int32_t token = 0;  // an id of the vocabulary, or a row of BatchPlan::embeddings
  std::int32_t position = 0;
  std::int32_t sequence = 0;  // index into BatchPlan::block_tables
  bool wants_logits = false;
  bool wants_argmax = false;  // the id alone; where the runner finds it
  // With wants_argmax, where the runner draws: 0 for the most probable id, above it the id that a
  // number below 2^53 falls on (compute::DrawArgs).
  float temperature = 0;
  std::uint64_t draw = 0;
  // Likewise, where the runner chooses: what of the vocabulary is drawn from, as in
  // engine::SamplingParams.
  std::int64_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  bool wants_hidden = false;  // the row after the last norm: what embeddings are pooled from
  bool is_embedding = false;  // what it stands for has no id: part of an image, a learned prompt
  // From 0 on: the token is not known yet. It is the id that the step submitted before this one
  // gives at this place of StepOutput::argmax; where that has none (-1), any id will do.
  std::int32_t awaited = -1;
};

// Rows of one sequence come in ascending positions without gaps, and everything before the first of
// them is already in the cache: written by earlier steps, or by another sequence that shares the
// blocks. Prefill, chunked prefill and decode differ only in how many rows a sequence has here.
struct BatchPlan {
  std::vector<BatchRow> rows;
  // Per sequence: the cache block that holds positions [i * block_tokens, (i + 1) * block_tokens).
  std::vector<std::span<const std::int32_t>> block_tables;
  // (n, hidden_dim): what rows that are no ids have in place of the table's row, scaled already.
  std::span<const float> embeddings;
  // The ids that rows want are chosen when ModelRunner::choose() is called, of logits that are
  // edited before. Where the runner edits.
  bool chooses_later = false;
  // Looked at before each layer; once true, the step is given up. May be null.
  const std::atomic<bool>* abort = nullptr;
};

// One logit of a row, changed before an id is chosen.
struct LogitChange {
  std::int32_t id = 0;
  float bias = 0;           // is added
  std::int32_t count = -1;  // in the output; 0: in the prompt alone; -1: nowhere, not penalised
};

// What is done to a row's logits, in this order: bias, what may not follow becomes -infinity,
// penalties (as in engine::SamplingParams).
struct RowEdits {
  std::span<const LogitChange> changes;       // each id once
  std::span<const std::uint32_t> may_follow;  // bit id % 32 of word id / 32; empty: every id may
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
};

// Valid until the next step is collected. After an aborted step there is nothing here, and the
// cache holds nothing new that counts: the same rows may be run again.
struct StepOutput {
  bool aborted = false;
  std::span<const float> logits;  // (rows that want logits, vocab_size), in row order
  // (rows that want it), in row order: the lowest id among equals, -1 where a logit is NaN or
  // +infinity, or where all are -infinity.
  std::span<const std::int32_t> argmax;
  std::span<const float> hidden;  // (rows that want hidden, hidden_dim), in row order
};

}  // namespace llorch::model
