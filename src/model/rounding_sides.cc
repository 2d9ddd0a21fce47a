#include "model/rounding_sides.h"

#include <algorithm>
#include <cmath>

namespace llorch::model {
namespace {

// How far two right results may be apart before they are rounded.
double tolerance_of(std::string_view tensor) {
  const std::span<const Checkpoint> rungs = checkpoints();
  const auto same = std::ranges::find(rungs, tensor, &Checkpoint::tensor);
  const auto block = std::ranges::find(rungs, std::string_view("block.0"), &Checkpoint::tensor);
  CHECK(block != rungs.end());
  return same != rungs.end() ? same->tolerance : block->tolerance;
}

}  // namespace

void RoundingSides::saw(const std::string& name, const compute::TensorView& view) {
  at_[view.data] = name;
}

std::vector<float> RoundingSides::take(compute::InputForm form, const compute::TensorView& x,
                                       std::int64_t row) {
  const float* begin = x.row<float>(row);
  std::vector<float> own(begin, begin + x.dims[1]);
  const auto name = at_.find(x.data);
  if (form == compute::InputForm::F32 || name == at_.end()) return own;
  const auto found = other_->tensors.find(name->second);
  if (found == other_->tensors.end() || found->second.shape != std::vector{x.rows(), x.dims[1]})
    return own;
  const std::size_t width = own.size();
  const std::span<const float> theirs =
      std::span(found->second.values).subspan(static_cast<std::size_t>(row) * width, width);
  const double tolerance = tolerance_of(name->second);
  std::vector<float> merged = own;
  for (std::size_t i = 0; i < width; ++i) {
    if (std::abs(double{own[i]} - theirs[i]) <= tolerance) merged[i] = theirs[i];
  }
  std::vector<float> rounded_own(width);
  std::vector<float> rounded_merged(width);
  compute::round_input(form, own, rounded_own.data());
  compute::round_input(form, merged, rounded_merged.data());
  num_rounded_ += static_cast<std::int64_t>(width);
  // Forms with a scale for each block have it rounded too, which moves all values of the block by
  // their last bits: no other side.
  constexpr double kLastBits = 1e-6;
  for (std::size_t i = 0; i < width; ++i) {
    const double moved = std::abs(double{rounded_own[i]} - rounded_merged[i]);
    num_taken_ += moved > kLastBits * std::abs(rounded_own[i]) ? 1 : 0;
  }
  return merged;
}

}  // namespace llorch::model
