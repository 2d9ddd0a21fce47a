// Weights on their way into tiles: their rows go to the device as the file has them, piece by
// piece, and are packed there.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "compute/cuda/device_memory.h"
#include "compute/cuda/queue.h"
#include "compute/weight.h"

namespace llorch::compute::cuda {

// Keeps the room for a piece from one weight to the next.
class Packing {
 public:
  // Fills weight.storage, which has room for the packed form, from the weight's rows of `row_bytes`
  // each. Fails where the device has no memory for a piece.
  Status pack(const Weight& weight, std::span<const std::byte> rows, std::int64_t row_bytes,
              Staging& staging, const Queue& queue);
  // When all weights are there.
  void end() { piece_ = {}; }

 private:
  Buffer piece_;
};

}  // namespace llorch::compute::cuda
