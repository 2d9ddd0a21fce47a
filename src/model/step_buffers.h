// What a step works in, on the device and on the host.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "model/config.h"
#include "model/runner.h"

namespace llorch::model {

// The memory steps work in, sized once: one at a time on the device, RunnerLimits::steps_in_flight
// of them between submit and collect.
class StepBuffers {
 public:
  // keys_observed > 0 also makes room for attention scores over that many keys (observers only).
  static Result<StepBuffers> allocate(const ModelConfig& config, const RunnerLimits& limits,
                                      std::int32_t keys_observed, compute::Backend& backend);

  std::int64_t device_bytes() const { return floats_.bytes() + indices_.bytes() + edits_.bytes(); }
  // Of host memory, for what goes to the device and comes back.
  std::int64_t host_bytes() const;

 private:
  friend class Transformer;
  StepBuffers() = default;

  // A step between submit and collect, and how much of each result it leaves.
  struct Flight {
    bool aborted = false;
    std::size_t num_logits = 0, num_ids = 0, num_hidden = 0;
    // Where it chooses later: of what, by what and where to. Null once that is done.
    compute::TensorView logits, rules, argmax;
  };
  Flight& flight_at(int index) { return flights_[static_cast<std::size_t>(place_of(index))]; }
  int place_of(int index) const { return (first_flight_ + index) % compute::Backend::kMarks; }
  std::span<std::int32_t> ids_at(int place) {
    const auto size = static_cast<std::size_t>(limits_.logit_rows);
    return std::span(host_ids_).subspan(static_cast<std::size_t>(place) * size, size);
  }

  RunnerLimits limits_;
  std::array<Flight, compute::Backend::kMarks> flights_;  // a ring
  int first_flight_ = 0;
  int num_flights_ = 0;
  std::int32_t blocks_max_ = 0;  // block table entries per sequence
  compute::Buffer floats_;
  compute::Buffer indices_;
  compute::Buffer edits_;       // what choose() is given; empty where it cannot be called
  compute::TensorView hidden_;  // (rows, hidden): the residual stream
  compute::TensorView normed_;  // (rows, hidden)
  compute::TensorView qkv_;     // (rows, qkv_width)
  compute::TensorView merged_;  // (rows, q_width): attention's heads side by side
  compute::TensorView ffn_;     // (rows, ffn_in_width)
  compute::TensorView picked_;  // (rows, hidden): rows that want hidden, after the last norm
  compute::TensorView logits_;  // (logit_rows, vocab): rows that want them, rows that want argmax
  compute::TensorView scores_;  // (rows, heads, keys_observed), or null
  std::vector<compute::TensorView> angles_;  // (rows, rotary_dim) of each of ModelConfig::ropes
  std::vector<compute::SequenceRun> runs_;
  std::vector<std::int32_t> staging_;
  compute::TensorView found_;           // (logit_rows) I32: the ids of the last step
  std::vector<std::int32_t> host_ids_;  // (kMarks, logit_rows)
  std::vector<float> host_logits_;
  std::vector<float> host_hidden_;
  compute::Buffer pinned_ids_;  // these let go of the memory above before it goes
  compute::Buffer pinned_logits_;
  compute::Buffer pinned_hidden_;
};

}  // namespace llorch::model
