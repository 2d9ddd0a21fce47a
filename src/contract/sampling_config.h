// SamplingConfig: how tokens are chosen from logits. Defaults and ranges are those of POST
// /execute.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "contract/fields.h"

namespace llorch::contract {

// Applied in this order: repetition penalty, temperature, top-k, top-p, min-p, softmax, draw. What
// came through read_sampling is finite and within its range.
struct SamplingConfig {
  float temperature = 1.0F;                     // 0..2; 0 takes the most probable token
  float top_p = 1.0F;                           // 0..1; 1 is off
  float min_p = 0.0F;                           // 0..1; 0 is off
  std::int64_t top_k = 0;                       // >= 0; 0 is off
  float repetition_penalty = 1.0F;              // > 0 and <= 2, over prompt and output; 1 is off
  std::vector<std::string> stop = {};           // at most 4 of 1..100 bytes
  std::optional<std::uint64_t> seed = {};       // none: the worker draws one and reports it
  std::optional<std::int32_t> max_tokens = {};  // none: what is left of the context

  friend bool operator==(const SamplingConfig&, const SamplingConfig&) = default;
};

// Takes the sampling fields of a request; failures are left in the reader.
SamplingConfig read_sampling(json::FieldReader& reader);

// Adds the same fields to `object`, an absent seed or max_tokens left out. Reading them gives an
// equal config.
void write_sampling(const SamplingConfig& config, json::Object& object);

// temperature, top_p, min_p, top_k and repetition_penalty alone, which OpenAI's bodies have too.
void read_knobs(json::FieldReader& reader, SamplingConfig& config);

void add_knobs_schema(SchemaWriter& writer);
void add_sampling_schema(SchemaWriter& writer);

}  // namespace llorch::contract
