// A borrowed, typed window on memory of a device. Never owns, never allocates, cheap to copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/check.h"
#include "tensor/dtype.h"

namespace llorch::tensor {

// Up to four dimensions, slowest first. All inner dimensions are contiguous; only the step between
// outermost entries (`row_stride`, in elements) is free, so a view can be a column range of wider
// rows. Plain (non-block) types only: block-quantised matrices are compute::Weight. The one
// exception is a key/value cache of Q8_0 (compute/ops.h), of which only the shape is asked here.
struct TensorView {
  static constexpr int kRankMax = 4;

  void* data = nullptr;
  DType dtype = DType::F32;
  int rank = 0;
  std::int64_t dims[kRankMax] = {};
  std::int64_t row_stride = 0;

  TensorView() = default;
  TensorView(void* memory, DType type, std::initializer_list<std::int64_t> shape)
      : data(memory), dtype(type) {
    CHECK(shape.size() >= 1 && shape.size() <= kRankMax);
    for (const std::int64_t dim : shape) dims[rank++] = dim;
    row_stride = row_elements();
  }

  explicit operator bool() const { return data != nullptr; }
  std::int64_t rows() const { return dims[0]; }
  std::int64_t row_elements() const {
    std::int64_t count = 1;
    for (int axis = 1; axis < rank; ++axis) count *= dims[axis];
    return count;
  }
  std::int64_t elements() const { return dims[0] * row_elements(); }
  bool is_contiguous() const { return row_stride == row_elements(); }

  // The typed address of row `index`; T must be the type that dtype names.
  template <class T>
  T* row(std::int64_t index) const {
    DCHECK(sizeof(T) == static_cast<std::size_t>(info(dtype).block_bytes));
    return static_cast<T*>(data) + index * row_stride;
  }

  // Rows [begin, begin + count).
  TensorView rows_from(std::int64_t begin, std::int64_t count) const {
    CHECK(begin >= 0 && count >= 0 && begin + count <= dims[0]);
    TensorView view = *this;
    view.data = static_cast<std::byte*>(data) + begin * row_stride * info(dtype).block_bytes;
    view.dims[0] = count;
    return view;
  }
  TensorView first_rows(std::int64_t count) const { return rows_from(0, count); }
  // Columns [begin, begin + count) of a (rows, columns) view.
  TensorView columns(std::int64_t begin, std::int64_t count) const {
    CHECK(rank == 2 && begin >= 0 && begin + count <= dims[1]);
    TensorView view = *this;
    view.data = static_cast<std::byte*>(data) + begin * info(dtype).block_bytes;
    view.dims[1] = count;
    return view;
  }
  // A (rows, heads * head_dim) view seen as (rows, heads, head_dim).
  TensorView split_heads(std::int64_t heads) const {
    CHECK(rank == 2 && heads > 0 && dims[1] % heads == 0);
    TensorView view = *this;
    view.rank = 3;
    view.dims[1] = heads;
    view.dims[2] = dims[1] / heads;
    return view;
  }
};

}  // namespace llorch::tensor
