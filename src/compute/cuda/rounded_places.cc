#include "compute/cuda/rounded_places.h"

#include "base/check.h"

namespace llorch::compute::cuda {

void RoundedPlaces::take_room(std::byte* room, std::int64_t place_bytes) {
  room_ = room;
  place_bytes_ = place_bytes;
  forget();
}

bool RoundedPlaces::fits(const TensorView& x) const {
  return 2 * rounded_elements(x.rows(), x.dims[1]) <= place_bytes_;
}

RoundedTarget RoundedPlaces::target() const {
  return {.data = reinterpret_cast<std::uint16_t*>(room_ + place_ * place_bytes_),
          .block_bits = block_bits_for(last_.rows, cores_.wgmma),
          .stride = static_cast<int>(padded_inputs(last_.cols))};
}

RoundedTarget RoundedPlaces::beside(const TensorView& out) {
  if (!cores_.mma || out.dims[1] % kTileInputs != 0 || !fits(out)) return {};
  return next(out);
}

std::optional<RoundedTarget> RoundedPlaces::find(const TensorView& x) const {
  const bool is_same = last_.of == x.data && last_.stride == x.row_stride &&
                       last_.rows == x.rows() && last_.cols == x.dims[1];
  return is_same ? std::optional(target()) : std::nullopt;
}

RoundedTarget RoundedPlaces::next(const TensorView& x) {
  CHECK(fits(x), "larger than the limits given to reserve");
  place_ = 1 - place_;
  last_ = {.of = x.data, .stride = x.row_stride, .rows = x.rows(), .cols = x.dims[1]};
  return target();
}

}  // namespace llorch::compute::cuda
