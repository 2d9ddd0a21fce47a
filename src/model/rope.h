// Rotary positions: the scaling recipes that metadata names, turned into frequencies.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace llorch::model {

enum class RopeScaling : std::uint8_t {
  None,
  Linear,    // every frequency divided by `factor`
  Llama3,    // long wavelengths divided by `factor`, short ones kept, those between blended
  Yarn,      // the same idea with a ramp over dimensions, and an attention factor
  LongRope,  // each frequency divided by its own divisor, and an attention factor
};

struct RopeParameters {
  double theta = 10000;
  std::int32_t rotary_dim = 0;  // values of a head that are rotated
  RopeScaling scaling = RopeScaling::None;
  double factor = 1;
  double original_context = 0;  // tokens the model was trained on before it was stretched
  double low_freq_factor = 1;   // Llama3
  double high_freq_factor = 4;  // Llama3
  double beta_fast = 32;        // Yarn
  double beta_slow = 1;         // Yarn
  bool truncate = true;         // Yarn: whole dimensions as the ramp's ends
  // Scales rotated values; absent: 1, except Yarn's and LongRope's own formulas.
  std::optional<double> attention_factor;
  // (rotary_dim / 2), dividing the frequencies one by one; empty: none. LongRope's factors, or the
  // "rope_freqs" tensor of a GGUF file.
  std::vector<double> divisors;
};

// An error names the number that makes no sense.
Result<RopeConfig> make_rope(const RopeParameters& parameters, compute::RopeStyle style);

}  // namespace llorch::model
