// Shape: up to eight dimensions, slowest first, whose product is known to fit.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/result.h"

namespace llorch::tensor {

class Shape {
 public:
  static constexpr int kRankMax = 8;

  Shape() = default;  // rank 0: one element
  // For shapes that our own code knows to be sound; CHECKs what make() reports.
  Shape(std::initializer_list<std::int64_t> dims);
  // For shapes that come from outside: at most kRankMax dimensions, none negative, product within
  // int64.
  static Result<Shape> make(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return dims_[static_cast<std::size_t>(axis)]; }
  std::int64_t elements() const { return elements_; }
  std::span<const std::int64_t> dims() const {
    return {dims_.data(), static_cast<std::size_t>(rank_)};
  }
  std::string to_string() const;  // "[2, 3]"

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<std::int64_t, kRankMax> dims_{};
  int rank_ = 0;
  std::int64_t elements_ = 1;
};

}  // namespace llorch::tensor
