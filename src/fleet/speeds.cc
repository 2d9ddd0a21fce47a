#include "fleet/speeds.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace llorch::fleet {
namespace {

constexpr double kWeight = 1.0 / 8;
constexpr double kSlowest = 0.01;  // t/s, and ms: whatever a broken clock says
constexpr double kFastest = 1e6;
constexpr double kGuessedBandwidth = 20e9;
constexpr double kReached = 0.6;          // of the bandwidth, by decoding
constexpr double kPrefillOverDecode = 8;  // where neither was measured
constexpr double kShareOfNextStep = 0.8;  // of one stream's speed, with twice the streams
constexpr double kGuessedWeights = 4e9;
constexpr double kGuessedStartMs = 5000;
constexpr double kReadBytesPerMs = 1e6;  // weights from disk
constexpr double kGuessedOutput = 256;
constexpr std::size_t kOutputsMax = 65536;
constexpr KeyId kAnyKey{~std::uint64_t{0}};  // no key's: what is known of a model
constexpr double kSlotRatioMax = 64;
constexpr std::uint16_t kSlotsToSettle = 16;

// The mean moves by the weight; the first measurement replaces the guess.
void learn(double& value, std::uint16_t& samples, double measured) {
  measured = std::clamp(measured, kSlowest, kFastest);
  const double mean = std::exp(std::log(value) + kWeight * (std::log(measured) - std::log(value)));
  value = samples == 0 ? measured : mean;
  if (samples < 0xffff) ++samples;
}

// Steps that were never measured follow the nearest one that was; without any, the guess.
void fill_steps(SpeedRow& row) {
  std::size_t first = 0;
  while (first < kBatchSteps && row.decode_samples[first] == 0) ++first;
  if (first == kBatchSteps) first = 0;
  for (std::size_t i = first; i-- > 0;)
    row.decode_tps[i] = row.decode_tps[i + 1] / kShareOfNextStep;
  for (std::size_t i = first + 1; i < kBatchSteps; ++i) {
    if (row.decode_samples[i] == 0) row.decode_tps[i] = row.decode_tps[i - 1] * kShareOfNextStep;
  }
}

std::uint64_t output_key(KeyId key, ModelIndex model) {
  return (key.value * 0x9e3779b97f4a7c15U) ^ (std::uint64_t{model} * 0xc2b2ae3d27d4eb4fU);
}

}  // namespace

bool SpeedRow::is_guess() const {
  return std::all_of(decode_samples.begin(), decode_samples.end(),
                     [](std::uint16_t samples) { return samples == 0; });
}

std::size_t batch_step(std::uint32_t streams) {
  if (streams <= 1) return 0;
  return std::min(kBatchSteps - 1, static_cast<std::size_t>(std::bit_width(streams - 1)));
}

SpeedIndex Speeds::find_or_add(ModelIndex model, DeviceIndex device, const SpeedPrior& prior) {
  const std::uint64_t pair = (std::uint64_t{model} << 32U) | device;
  const auto [found, is_new] = by_pair_.try_emplace(pair, static_cast<SpeedIndex>(rows_.size()));
  if (!is_new) return found->second;
  const double bandwidth = prior.bytes_per_second > 0 ? prior.bytes_per_second : kGuessedBandwidth;
  const double weights = prior.weight_bytes > 0 ? prior.weight_bytes : kGuessedWeights;
  SpeedRow& row = rows_.emplace_back();
  row.decode_tps[0] = std::clamp(kReached * bandwidth / weights, kSlowest, kFastest);
  row.prefill_tps = std::min(kFastest, row.decode_tps[0] * kPrefillOverDecode);
  row.start_ms = kGuessedStartMs + weights / kReadBytesPerMs;
  fill_steps(row);
  return found->second;
}

void Speeds::learn_prefill(SpeedIndex index, double tokens_per_second) {
  SpeedRow& row = rows_[index];
  learn(row.prefill_tps, row.prefill_samples, tokens_per_second);
}

void Speeds::learn_decode(SpeedIndex index, std::uint32_t streams, double tokens_per_second) {
  SpeedRow& row = rows_[index];
  const std::size_t step = batch_step(streams);
  learn(row.decode_tps[step], row.decode_samples[step], tokens_per_second);
  fill_steps(row);
}

void Speeds::learn_start(SpeedIndex index, double millis) {
  SpeedRow& row = rows_[index];
  learn(row.start_ms, row.start_samples, millis);
}

double Speeds::expected_output(KeyId key, ModelIndex model, std::uint32_t most) const {
  auto found = outputs_.find(output_key(key, model));
  if (found == outputs_.end()) found = outputs_.find(output_key(kAnyKey, model));
  const double tokens =
      found == outputs_.end() ? kGuessedOutput : std::exp(static_cast<double>(found->second));
  return most == 0 ? tokens : std::min(tokens, static_cast<double>(most));
}

void Speeds::learn_output(KeyId key, ModelIndex model, std::uint32_t tokens) {
  const auto measured = static_cast<float>(std::log(std::max(1.0, static_cast<double>(tokens))));
  if (outputs_.size() >= kOutputsMax) outputs_.erase(outputs_.begin());
  for (const KeyId whose : {key, kAnyKey}) {
    const auto [found, is_new] = outputs_.try_emplace(output_key(whose, model), measured);
    if (!is_new) found->second += static_cast<float>(kWeight) * (measured - found->second);
  }
}

double Speeds::slot_ratio(LineIndex line) const {
  return line < slot_ratio_.size() ? std::exp(slot_ratio_[line].log) : 1;
}

void Speeds::learn_slot(LineIndex line, double predicted_s, double actual_s) {
  if (predicted_s <= 0 || actual_s <= 0) return;
  if (line >= slot_ratio_.size()) slot_ratio_.resize(std::size_t{line} + 1);
  const double limit = std::log(kSlotRatioMax);
  const double measured = std::clamp(std::log(actual_s / predicted_s), -limit, limit);
  Ratio& ratio = slot_ratio_[line];
  // The first few count as their mean: a burst is told about before many of it have ended.
  if (ratio.samples < kSlotsToSettle) ++ratio.samples;
  ratio.log += (measured - ratio.log) / ratio.samples;
}

}  // namespace llorch::fleet
