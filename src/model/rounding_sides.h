// For comparisons of a backend that rounds what products take with the reference, which rounds
// likewise: a number that lies between two that the form has goes to one or the other by its last
// bit, in which both runs may be right and differ. One step of a half is more than the tolerances
// of the checkpoints, so the reference takes the other run's number there and rounds that.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoints.h"

namespace llorch::model {

class RoundingSides {
 public:
  // `other` outlives this.
  explicit RoundingSides(const Trace& other) : other_(&other) {}

  // The memory that holds a tensor of the trace from now on, until it holds another one.
  void saw(const std::string& name, const compute::TensorView& view);
  // From now on nothing is taken.
  void stop() { at_.clear(); }

  // ReferenceForms::taken: the row as it is, but for numbers that agree with the other run's within
  // the tolerance of their checkpoint and are rounded to something else.
  std::vector<float> take(compute::InputForm form, const compute::TensorView& x, std::int64_t row);

  // How many numbers were asked about, and of how many the other run's was taken.
  std::int64_t num_rounded() const { return num_rounded_; }
  std::int64_t num_taken() const { return num_taken_; }

 private:
  const Trace* other_;
  std::map<const void*, std::string> at_;
  std::int64_t num_rounded_ = 0;
  std::int64_t num_taken_ = 0;
};

}  // namespace llorch::model
