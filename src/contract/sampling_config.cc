#include "contract/sampling_config.h"

#include "contract/limits.h"

namespace llorch::contract {
namespace {

// What every body that asks for text has.
template <class V, class T>
void describe_knobs(V& v, T& config) {
  v("temperature", config.temperature, {.min = 0, .max = kTemperatureMax, .doc = "0 is greedy."});
  v("top_p", config.top_p, {.min = 0, .max = 1});
  v("min_p", config.min_p, {.min = 0, .max = 1});
  v("top_k", config.top_k, {.min = 0, .doc = "0 is off."});
  v("repetition_penalty", config.repetition_penalty,
    {.min = 0, .max = kRepetitionPenaltyMax, .above_min = true, .doc = "Over prompt and output."});
}

void check_penalty(json::FieldReader& reader, const SamplingConfig& config) {
  // A positive double below the smallest float: the sampler would divide by zero.
  if (config.repetition_penalty == 0.0F)
    reader.fail("repetition_penalty", "> 0 and <= 2", "must be above 0 as a 32-bit number");
}

}  // namespace

template <class V, Described<SamplingConfig> T>
void describe(V& v, T& config) {
  v("max_tokens", config.max_tokens,
    {.min = 1, .max = kMaxTokensMax, .doc = "Default: the rest of the context."});
  describe_knobs(v, config);
  v("stop", config.stop, {.bytes = {1, kStopBytesMax}, .max_items = kStopStringsMax});
  v("seed", config.seed, {.min = 0, .doc = "Default: drawn and reported."});
}

void read_knobs(json::FieldReader& reader, SamplingConfig& config) {
  FieldTaker taker(reader);
  describe_knobs(taker, config);
  check_penalty(reader, config);
}

SamplingConfig read_sampling(json::FieldReader& reader) {
  SamplingConfig config;
  FieldTaker taker(reader);
  describe(taker, config);
  check_penalty(reader, config);
  return config;
}

void write_sampling(const SamplingConfig& config, json::Object& object) {
  FieldWriter writer(object);
  describe(writer, config);
}

void add_knobs_schema(SchemaWriter& writer) {
  const SamplingConfig defaults;
  describe_knobs(writer, defaults);
}

void add_sampling_schema(SchemaWriter& writer) {
  const SamplingConfig defaults;
  describe(writer, defaults);
}

}  // namespace llorch::contract
