#include "compute/cuda/packing.h"

#include <algorithm>

#include "compute/cuda/products.h"
#include "compute/cuda/workspace.h"

namespace llorch::compute::cuda {

Status Packing::pack(const Weight& weight, std::span<const std::byte> rows, std::int64_t row_bytes,
                     Staging& staging, const Queue& queue) {
  const std::int64_t groups = std::max<std::int64_t>(1, kPackBytes / (row_bytes * kGroupOutputs));
  const std::int64_t piece_rows = groups * kGroupOutputs;
  if (piece_.bytes() < std::min(piece_rows, weight.rows) * row_bytes) {
    piece_ = {};
    Result<Buffer> room =
        allocate_device(std::max(kPackBytes, piece_rows * row_bytes), queue.stream);
    if (!room.ok()) return room.error();
    piece_ = room.take();
  }
  for (std::int64_t first = 0; first < weight.rows; first += piece_rows) {
    const std::int64_t count = std::min(piece_rows, weight.rows - first);
    staging.copy(rows.subspan(static_cast<std::size_t>(first * row_bytes),
                              static_cast<std::size_t>(count * row_bytes)),
                 piece_.data(), queue.stream);
    launch_pack({.dtype = weight.dtype,
                 .rows = weight.rows,
                 .cols = weight.cols,
                 .first_row = first,
                 .num_rows = count,
                 .from = piece_.data(),
                 .to = weight.storage.data()},
                queue);
  }
  return ok_status();
}

}  // namespace llorch::compute::cuda
