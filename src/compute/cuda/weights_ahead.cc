#include "compute/cuda/weights_ahead.h"

namespace llorch::compute::cuda {
namespace {

// On an H200 the best of 0 to 48 MB; from 24 MB on it was slower than nothing (docs/kernels.md).
constexpr std::int64_t bytes_ahead(AheadOf kind) {
  constexpr std::int64_t kMega = std::int64_t{1} << 20;
  switch (kind) {
    case AheadOf::BehindAttention:
      return 6 * kMega;
    case AheadOf::Heads:
      return kMega;
    case AheadOf::Others:
      break;
  }
  return 0;
}

}  // namespace

void WeightsAhead::follow(ProductArgs& args, AheadOf kind) {
  if (!is_learning_) return;
  Parts own;
  for (int i = 0; i < args.num_parts; ++i) {
    const ProductPart& part = args.parts[i];
    const std::int64_t groups = (part.outputs + kGroupOutputs - 1) / kGroupOutputs;
    own[static_cast<std::size_t>(i)] = {part.weight,
                                        groups * kTileGroup * args.tiles * tile_bytes(part.form)};
  }
  if (last_ != nullptr) next_[last_] = own;
  last_ = args.parts[0].weight;
  const auto found = next_.find(last_);
  if (found == next_.end()) return;
  const std::int64_t bytes_most = bytes_ahead(kind);
  if (bytes_most == 0) return;
  std::int64_t total = 0;
  for (const Ahead& part : found->second) total += part.bytes;
  for (std::size_t i = 0; i < found->second.size(); ++i) {
    // Of each part the same share: their tiles are read side by side.
    Ahead part = found->second[i];
    if (total > bytes_most) part.bytes = part.bytes * bytes_most / total / 16 * 16;
    args.ahead[i] = part;
  }
}

}  // namespace llorch::compute::cuda
