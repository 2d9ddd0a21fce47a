// Where rows lie in 16 bits, as products read them, and which: bookkeeping alone, without a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "compute/cuda/product_plan.h"
#include "compute/ops.h"

namespace llorch::compute::cuda {

// Two places take turns: a kernel may read its input from one while it fills the other.
class RoundedPlaces {
 public:
  explicit RoundedPlaces(const TensorCores& cores) : cores_(cores) {}

  // `room`: two places of so many bytes each.
  void take_room(std::byte* room, std::int64_t place_bytes);
  // What was rounded may be written over.
  void forget() { last_ = {}; }

  // Where an op leaves what it writes to `out` in 16 bits too: a product is likely to follow.
  // Nowhere where columns would have to be filled up.
  RoundedTarget beside(const TensorView& out);
  // Where these rows are, as the op before left them.
  std::optional<RoundedTarget> find(const TensorView& x) const;
  // Where they are to be put now. There is room: it is the caller's who reserved it.
  RoundedTarget next(const TensorView& x);

 private:
  struct Rounded {
    const void* of = nullptr;
    std::int64_t stride = 0;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
  };

  bool fits(const TensorView& x) const;
  RoundedTarget target() const;  // of last_, in place_

  TensorCores cores_;
  std::byte* room_ = nullptr;
  std::int64_t place_bytes_ = 0;
  Rounded last_;
  int place_ = 0;  // 0 or 1: the one filled last
};

}  // namespace llorch::compute::cuda
