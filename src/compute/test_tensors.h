// For tests of the backends: repeatable random values, random weights of every type, tensors on a
// device.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "compute/backend.h"
#include "tensor/half.h"

namespace llorch::compute::test {

using tensor::DType;

// splitmix64: the same values everywhere for the same seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(limit));
  }
  // In [-scale, scale).
  float number(float scale = 1.0F) {
    return (static_cast<float>(bits() >> 40) * 0x1p-23F - 1.0F) * scale;
  }
  std::vector<float> numbers(std::int64_t count, float scale = 1.0F) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = number(scale);
    return values;
  }

 private:
  std::uint64_t state_;
};

// Where a block keeps the halfs that scale it; set to moderate values so that random blocks stay
// finite.
inline std::vector<int> scale_offsets(DType dtype) {
  switch (dtype) {
    case DType::Q4_0:
    case DType::Q5_0:
    case DType::Q8_0:
    case DType::IQ4_NL:
    case DType::IQ4_XS:
    case DType::IQ1_S:
    case DType::IQ2_XXS:
    case DType::IQ2_XS:
    case DType::IQ2_S:
    case DType::IQ3_XXS:
    case DType::IQ3_S:
      return {0};
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K:
      return {0, 2};
    case DType::Q2_K:
      return {80, 82};
    case DType::Q3_K:
      return {108};
    case DType::Q6_K:
      return {208};
    case DType::TQ1_0:
      return {52};
    case DType::TQ2_0:
      return {64};
    default:
      return {};
  }
}

// IQ1_M's half is spread over the tops of four words.
inline void put_spread_half(std::uint16_t half, std::byte* block) {
  for (int i = 0; i < 4; ++i) {
    std::byte& top = block[49 + 2 * i];
    top = (top & std::byte{0xF}) | static_cast<std::byte>((half >> (4 * i) & 0xF) << 4);
  }
}

// One plain number of the type, small and finite.
inline void put_number(DType dtype, Random& random, std::byte* out) {
  const float value = random.number();
  const auto put = [out](auto number) { std::memcpy(out, &number, sizeof(number)); };
  switch (dtype) {
    case DType::F64:
      return put(static_cast<double>(value));
    case DType::F32:
      return put(value);
    case DType::F16:
      return put(tensor::float_to_half(value));
    case DType::BF16:
      return put(tensor::float_to_bfloat16(value));
    case DType::F8E4M3:
    case DType::F8E5M2:
      return put(static_cast<std::uint8_t>(random.bits() & 0xBFU));
    case DType::Bool:
      return put(static_cast<std::uint8_t>(random.bits() & 1U));
    default:
      break;  // integers of any width: a small one, the rest of the bytes is zero already
  }
  *out = static_cast<std::byte>(random.bits() & 0x3FU);
}

inline std::vector<std::byte> random_weight(DType dtype, std::int64_t elems, Random& random) {
  const tensor::DTypeInfo& type = tensor::info(dtype);
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(tensor::storage_bytes(dtype, elems).value()));
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(type.block_bytes)) {
    std::byte* block = bytes.data() + at;
    if (type.block_elems == 1) {
      put_number(dtype, random, block);
      continue;
    }
    for (int i = 0; i < type.block_bytes; ++i)
      block[i] = static_cast<std::byte>(random.bits() & 0xFFU);
    for (const int offset : scale_offsets(dtype)) {
      const std::uint16_t scale = tensor::float_to_half(random.number(0.02F));
      std::memcpy(block + offset, &scale, sizeof(scale));
    }
    if (dtype == DType::IQ1_M) put_spread_half(tensor::float_to_half(random.number(0.02F)), block);
    if (dtype == DType::NVFP4) {
      for (int i = 0; i < 4; ++i) block[i] = static_cast<std::byte>(16 + random.below(24));
    }
    if (dtype == DType::MXFP4) block[0] = static_cast<std::byte>(120 + random.below(8));
  }
  return bytes;
}

enum class Layout { Tight, ColumnRange };

// Tensors on one backend that live as long as this object. A ColumnRange tensor is a window in
// wider rows full of NaN: reading outside poisons the result, writing outside fails the test at the
// end.
class Device {
 public:
  explicit Device(Backend& backend) : backend_(backend) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() {
    for (const Guarded& guarded : guarded_) expect_intact(guarded);
  }

  Backend& backend() { return backend_; }

  TensorView floats(std::span<const float> values, std::initializer_list<std::int64_t> shape) {
    TensorView view(allocate(static_cast<std::int64_t>(values.size_bytes())), DType::F32, shape);
    CHECK(view.elements() == static_cast<std::int64_t>(values.size()));
    backend_.upload(std::as_bytes(values), view.data);
    return view;
  }
  TensorView ints(std::span<const std::int32_t> values, std::initializer_list<std::int64_t> shape) {
    TensorView view(allocate(static_cast<std::int64_t>(values.size_bytes())), DType::I32, shape);
    CHECK(view.elements() == static_cast<std::int64_t>(values.size()));
    backend_.upload(std::as_bytes(values), view.data);
    return view;
  }
  TensorView ints(std::span<const std::int32_t> values) {
    return ints(values, {static_cast<std::int64_t>(values.size())});
  }
  TensorView zeros(DType dtype, std::initializer_list<std::int64_t> shape) {
    TensorView view(nullptr, dtype, shape);
    const tensor::DTypeInfo& type = tensor::info(dtype);
    view.data = allocate(view.elements() / type.block_elems * type.block_bytes);
    return view;
  }
  TensorView matrix(std::span<const float> values, std::int64_t rows, std::int64_t cols,
                    Layout layout) {
    if (layout == Layout::Tight) return floats(values, {rows, cols});
    constexpr std::int64_t kLeft = 3;
    constexpr std::int64_t kRight = 2;
    const std::int64_t width = kLeft + cols + kRight;
    std::vector<float> wide(static_cast<std::size_t>(rows * width),
                            std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        wide[static_cast<std::size_t>(r * width + kLeft + c)] =
            values[static_cast<std::size_t>(r * cols + c)];
      }
    }
    const TensorView whole = floats(wide, {rows, width});
    guarded_.push_back({whole, kLeft, cols});
    return whole.columns(kLeft, cols);
  }
  // A matrix that an op fills; full of NaN before.
  TensorView output(std::int64_t rows, std::int64_t cols, Layout layout) {
    const std::vector<float> nans(static_cast<std::size_t>(rows * cols),
                                  std::numeric_limits<float>::quiet_NaN());
    return matrix(nans, rows, cols, layout);
  }
  // The result lives as long as this object; `bytes` must too.
  const Weight* weight(DType dtype, std::int64_t rows, std::int64_t cols,
                       std::span<const std::byte> bytes) {
    auto loaded = backend_.load_weight({.name = "test",
                                        .dtype = dtype,
                                        .rows = rows,
                                        .cols = cols,
                                        .row_stride = cols,
                                        .use = WeightUse::Both,
                                        .bytes = bytes});
    CHECK(loaded.ok(), loaded.error().message);
    weights_.push_back(std::make_unique<Weight>(loaded.take()));
    return weights_.back().get();
  }

  std::vector<float> read(const TensorView& view) {
    std::vector<float> values;
    std::vector<float> row(static_cast<std::size_t>(view.row_elements()));
    for (std::int64_t r = 0; r < view.rows(); ++r) {
      backend_.download(view.row<float>(r), std::as_writable_bytes(std::span(row)));
      values.insert(values.end(), row.begin(), row.end());
    }
    return values;
  }

 private:
  struct Guarded {
    TensorView whole;
    std::int64_t begin;
    std::int64_t count;
  };

  void* allocate(std::int64_t bytes) {
    auto buffer = backend_.allocate(bytes);
    CHECK(buffer.ok(), buffer.error().message);
    buffers_.push_back(buffer.take());
    return buffers_.back().data();
  }
  void expect_intact(const Guarded& guarded) {
    const std::vector<float> values = read(guarded.whole);
    const std::int64_t width = guarded.whole.dims[1];
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t col = static_cast<std::int64_t>(i) % width;
      const bool inside = col >= guarded.begin && col < guarded.begin + guarded.count;
      if (inside) continue;
      EXPECT_TRUE(std::isnan(values[i])) << "written outside its columns, at " << i;
    }
  }

  Backend& backend_;
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<Weight>> weights_;
  std::vector<Guarded> guarded_;
};

inline void expect_same_bits(std::span<const float> found, std::span<const float> expected,
                             std::string_view what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << what << ", value " << i << ": " << found[i] << ", expected " << expected[i];
  }
}

}  // namespace llorch::compute::test
