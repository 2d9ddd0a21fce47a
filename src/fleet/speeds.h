// What was learnt about speeds: how fast a model runs on a device, how long its answers are, how
// wrong the predictions were. Everything here predicts; nothing here decides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "fleet/handles.h"
#include "fleet/ids.h"

namespace llorch::fleet {

inline constexpr std::size_t kBatchSteps = 7;  // 1, 2, 4 … 64 streams
std::size_t batch_step(std::uint32_t streams);

// Guesses for a pair that nobody has measured.
struct SpeedPrior {
  double bytes_per_second = 0;  // memory bandwidth of the device; 0: unknown
  double weight_bytes = 0;      // that each token reads
};

// One model on one device. Tokens per second, of one stream among so many.
struct SpeedRow {
  double prefill_tps = 0;
  std::array<double, kBatchSteps> decode_tps{};  // every step has a value
  double start_ms = 0;                           // from the order to the first answer
  std::uint16_t prefill_samples = 0;
  std::uint16_t start_samples = 0;
  std::array<std::uint16_t, kBatchSteps> decode_samples{};

  bool is_guess() const;  // nobody has measured it
};

using SpeedIndex = std::uint32_t;

class Speeds {
 public:
  // The row of this pair; made from the prior where there is none.
  SpeedIndex find_or_add(ModelIndex model, DeviceIndex device, const SpeedPrior& prior);
  const SpeedRow& row(SpeedIndex index) const { return rows_[index]; }
  std::size_t size() const { return rows_.size(); }

  // Measurements of ours: a moving mean of the logarithm, weight 1/8, the first one whole.
  void learn_prefill(SpeedIndex index, double tokens_per_second);
  void learn_decode(SpeedIndex index, std::uint32_t streams, double tokens_per_second);
  void learn_start(SpeedIndex index, double millis);

  // Tokens an answer will have. Learnt for each key and model, at most `most` (0: no bound).
  double expected_output(KeyId key, ModelIndex model, std::uint32_t most) const;
  void learn_output(KeyId key, ModelIndex model, std::uint32_t tokens);

  // How long jobs of a line hold their slots, over what was predicted when they came. It is learnt
  // from slots and not from waiting times: those come a whole queue too late, and correcting by
  // them swings from far too long to far too short.
  double slot_ratio(LineIndex line) const;
  void learn_slot(LineIndex line, double predicted_s, double actual_s);

 private:
  std::vector<SpeedRow> rows_;
  std::unordered_map<std::uint64_t, SpeedIndex> by_pair_;  // (model, device)
  std::unordered_map<std::uint64_t, float> outputs_;       // hash of (key, model) → ln tokens
  struct Ratio {
    double log = 0;
    std::uint16_t samples = 0;
  };
  std::vector<Ratio> slot_ratio_;  // by line
};

}  // namespace llorch::fleet
