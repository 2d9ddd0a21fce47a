#include "tensor/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace llorch::tensor {

Result<Shape> Shape::make(std::span<const std::int64_t> dims) {
  Shape shape;
  if (dims.size() > kRankMax) {
    return Error{ErrorCode::Corrupt, fmt::format("{} dimensions, more than the {} supported",
                                                 dims.size(), int{kRankMax})};
  }
  for (const std::int64_t dim : dims) {
    if (dim < 0) return Error{ErrorCode::Corrupt, fmt::format("negative dimension {}", dim)};
    shape.dims_[static_cast<std::size_t>(shape.rank_++)] = dim;
  }
  // A zero anywhere makes the product zero, but the others must still not overflow on the way
  // there.
  for (const std::int64_t dim : dims) {
    if (__builtin_mul_overflow(shape.elements_, dim == 0 ? 1 : dim, &shape.elements_)) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("shape [{}] has more than 2^63 elements", fmt::join(dims, ", "))};
    }
  }
  for (const std::int64_t dim : dims) {
    if (dim == 0) shape.elements_ = 0;
  }
  return shape;
}

Shape::Shape(std::initializer_list<std::int64_t> dims) {
  *this = make({dims.begin(), dims.size()}).take();
}

std::string Shape::to_string() const {
  return fmt::format("[{}]", fmt::join(dims(), ", "));
}

}  // namespace llorch::tensor
