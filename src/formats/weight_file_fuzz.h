// For the fuzzers of weight files: an error with words, or tensors whose every byte can be read.
#pragma once

#include "base/check.h"
#include "formats/weight_file.h"

namespace llorch::formats {

inline int read_everything(const Result<WeightFile>& weights) {
  constexpr std::int64_t kGatherElementsMax = 1 << 16;
  if (!weights.ok()) {
    CHECK(!weights.error().message.empty());
    return 0;
  }
  for (const WeightTensor& tensor : weights->tensors()) {
    if (tensor.shape.elements() > kGatherElementsMax) continue;
    const auto bytes = tensor::storage_bytes(tensor.dtype, tensor.shape.elements());
    CHECK(bytes && gather_contiguous(tensor).size() == static_cast<std::size_t>(*bytes));
  }
  return 0;
}

}  // namespace llorch::formats
