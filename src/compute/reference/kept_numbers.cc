#include "compute/reference/kept_numbers.h"

#include <array>

#include "base/check.h"
#include "compute/cache_blocks.h"
#include "compute/dequantize.h"
#include "tensor/half.h"

namespace llorch::compute {

using tensor::DType;
using tensor::TensorView;

namespace {

// The Q8_0 block that holds a value.
std::byte* q8_0_block(const TensorView& cache, std::int64_t index) {
  const tensor::DTypeInfo& type = tensor::info(DType::Q8_0);
  return static_cast<std::byte*>(cache.data) + index / type.block_elems * type.block_bytes;
}

float kept_number(const TensorView& cache, std::int64_t index) {
  if (cache.dtype == DType::Q8_0) {
    const tensor::DTypeInfo& type = tensor::info(DType::Q8_0);
    std::array<float, 32> values;
    const std::span<const std::byte> block(q8_0_block(cache, index),
                                           static_cast<std::size_t>(type.block_bytes));
    CHECK(dequantize(DType::Q8_0, block, values).ok());
    return values[static_cast<std::size_t>(index % type.block_elems)];
  }
  if (cache.dtype == DType::F16) {
    return tensor::half_to_float(static_cast<const std::uint16_t*>(cache.data)[index]);
  }
  return static_cast<const float*>(cache.data)[index];
}

}  // namespace

std::int64_t cache_index(const TensorView& cache, std::int64_t block, std::int64_t head,
                         std::int64_t offset, std::int64_t i) {
  CHECK(block >= 0 && block < cache.dims[0]);
  return block * cache.row_stride + (head * cache.dims[2] + offset) * cache.dims[3] + i;
}

double read_cache(const TensorView& cache, std::int64_t index, InputForm form) {
  float number = kept_number(cache, index);
  if (form != InputForm::F32) round_input(form, {&number, 1}, &number);
  return static_cast<double>(number);
}

void write_cache(const TensorView& cache, std::int64_t index, std::span<const float> values) {
  if (cache.dtype == DType::Q8_0) return store_q8_0(values, q8_0_block(cache, index));
  for (const float value : values) {
    if (cache.dtype == DType::F16) {
      static_cast<std::uint16_t*>(cache.data)[index++] = tensor::float_to_half(value);
    } else {
      static_cast<float*>(cache.data)[index++] = value;
    }
  }
}

}  // namespace llorch::compute
