// Products of every backend with every type of weight: against the reference, row by row, through
// strides and at any address.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "compute/conformance.h"
#include "compute/create.h"
#include "compute/quantize.h"

namespace llorch::compute::test {
namespace {

using Linear = Conformance;
INSTANTIATE_TEST_SUITE_P(Every, Linear, testing::ValuesIn(backends_under_test()), label_of);

struct LinearCase {
  DType dtype = DType::F32;
  std::int64_t rows = 1;
  std::int64_t k = 1;
  std::int64_t n = 1;
  bool bias = false;
  bool accumulate = false;
  Layout layout = Layout::Tight;
};

// Rows [first, first + count) of the case as a call of their own.
Op linear_op(const LinearCase& c, std::int64_t first, std::int64_t count) {
  return [=](Device& device) {
    Random random(31);
    const std::vector<std::byte> weight = random_weight(c.dtype, c.n * c.k, random);
    const std::vector<float> bias = random.numbers(c.n);
    const std::vector<float> x = random.numbers(c.rows * c.k);
    const std::vector<float> out = random.numbers(c.rows * c.n);
    const auto part = [&](const std::vector<float>& all, std::int64_t cols) {
      return std::span(all).subspan(static_cast<std::size_t>(first * cols),
                                    static_cast<std::size_t>(count * cols));
    };
    const TensorView target_out = device.matrix(part(out, c.n), count, c.n, c.layout);
    const LinearTarget target = {.weight = device.weight(c.dtype, c.n, c.k, weight),
                                 .bias = c.bias ? device.floats(bias, {c.n}) : TensorView(),
                                 .out = target_out,
                                 .accumulate = c.accumulate};
    device.backend().linear(
        {.x = device.matrix(part(x, c.k), count, c.k, c.layout), .targets = {&target, 1}});
    return device.read(target_out);
  };
}
Op linear_op(const LinearCase& c) {
  return linear_op(c, 0, c.rows);
}

std::string to_string(const LinearCase& c) {
  return fmt::format("{}: ({} x {}) x ({} x {}), bias {}, accumulate {}", tensor::name(c.dtype),
                     c.rows, c.k, c.n, c.k, c.bias, c.accumulate);
}

// The size a sum of k products of the case's weights with values up to one is likely to have: what
// rounding errors are relative to, where the sum itself may cancel.
double magnitude(const LinearCase& c) {
  Random random(31);
  const std::vector<std::byte> bytes = random_weight(c.dtype, c.n * c.k, random);
  std::vector<float> weights(static_cast<std::size_t>(c.n * c.k));
  CHECK(dequantize(c.dtype, bytes, weights).ok());
  double largest = 0;
  for (const float weight : weights)
    largest = std::max(largest, std::abs(static_cast<double>(weight)));
  return largest * std::sqrt(static_cast<double>(c.k));
}

std::vector<std::int64_t> widths(DType dtype) {
  switch (tensor::info(dtype).block_elems) {
    case 1:
      return {1, 17, 172, 288};
    case 32:
      return {32, 96, 288};
    default:
      return {256, 768};
  }
}

TEST_P(Linear, LinearForEveryTypeAndOddShapes) {
  for (const DType dtype : decodable_types()) {
    for (const std::int64_t k : widths(dtype)) {
      for (const std::int64_t rows : {1, 2, 17}) {
        for (const std::int64_t n : {1, 3, 37}) {
          const bool flag = (rows + n) % 4 == 0;
          const LinearCase c = {
              dtype, rows, k, n, flag, !flag, flag ? Layout::ColumnRange : Layout::Tight};
          expect_close(kTolerance.linear, n, to_string(c), linear_op(c), magnitude(c));
        }
      }
    }
  }
}

TEST_P(Linear, LinearWithEveryCombinationOfBiasAccumulationAndStrides) {
  for (int bits = 0; bits < 8; ++bits) {
    const Layout layout = (bits & 4) != 0 ? Layout::ColumnRange : Layout::Tight;
    const LinearCase c = {DType::F32, 5, 172, 21, (bits & 1) != 0, (bits & 2) != 0, layout};
    expect_close(kTolerance.linear, c.n, to_string(c), linear_op(c), magnitude(c));
  }
}

TEST_P(Linear, LinearRowsDoNotDependOnTheirNeighbours) {
  for (const DType dtype : decodable_types()) {
    const std::int64_t k = widths(dtype).back();
    const LinearCase c = {dtype, 17, k, 21, true, true, Layout::Tight};
    const std::vector<float> together = run(linear_op(c));
    for (std::int64_t row = 0; row < c.rows; ++row) {
      const auto expected = std::span(together).subspan(static_cast<std::size_t>(row * c.n),
                                                        static_cast<std::size_t>(c.n));
      expect_same_bits(run(linear_op(c, row, 1)), expected,
                       fmt::format("{} row {}", to_string(c), row));
    }
    for (std::int64_t count = 2; count <= 9; ++count) {  // kernels differ by the number of rows
      const auto last = std::span(together).last(static_cast<std::size_t>(count * c.n));
      expect_same_bits(run(linear_op(c, c.rows - count, count)), last,
                       fmt::format("{}, {} rows", to_string(c), count));
    }
  }
}

// Infinities, what is none, and finite values that the form rounds to an infinity.
TEST_P(Linear, WhatIsNoNumberComesOutAsTheFormHasItAndOnlyInItsRow) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::int64_t kDim = 67;
  constexpr std::int64_t kOutputs = 3;
  const std::vector<float> odd = {
      1, std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity, kLargest, 1e-39F};
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    for (const std::int64_t at : {0, 33, 66}) {
      const auto op = [&](Device& device) {
        Random random(36);
        std::vector<float> weights = random.numbers(kOutputs * kDim);
        for (float& weight : weights) weight = std::copysign(0.5F, weight);
        std::vector<std::byte> bytes(
            static_cast<std::size_t>(tensor::storage_bytes(dtype, kOutputs * kDim).value()));
        CHECK(quantize(dtype, weights, bytes).ok());
        std::vector<float> x;
        for (const float value : odd) {
          for (std::int64_t i = 0; i < kDim; ++i) x.push_back(i == at ? value : 0.25F);
        }
        const auto rows = std::ssize(odd);
        const TensorView out = device.output(rows, kOutputs, Layout::Tight);
        const LinearTarget target = {
            .weight = device.weight(dtype, kOutputs, kDim, bytes), .bias = {}, .out = out};
        device.backend().linear({.x = device.floats(x, {rows, kDim}), .targets = {&target, 1}});
        return device.read(out);
      };
      Device reference(*reference_);
      const std::vector<float> expected = op(reference);
      const std::vector<float> found = run(op);
      for (std::size_t i = 0; i < found.size(); ++i) {
        SCOPED_TRACE(fmt::format("{} with {} at {}", tensor::name(dtype), odd[i / kOutputs], at));
        if (std::isfinite(expected[i])) {
          EXPECT_NEAR(found[i], expected[i], 1e-6 * std::max(1.0F, std::abs(expected[i])));
        } else {
          EXPECT_EQ(std::isnan(found[i]), std::isnan(expected[i]));
          EXPECT_EQ(std::isinf(found[i]), std::isinf(expected[i]));
          EXPECT_EQ(found[i] > 0, expected[i] > 0);
        }
      }
    }
  }
}

TEST_P(Linear, SeveralTargetsEqualOneCallEach) {
  const auto run_targets = [&](bool together) {
    return run([&](Device& device) {
      Random random(33);
      constexpr std::int64_t kRows = 3;
      constexpr std::int64_t kDim = 96;
      const TensorView x = device.floats(random.numbers(kRows * kDim), {kRows, kDim});
      std::vector<std::vector<std::byte>> bytes;
      std::vector<LinearTarget> targets;
      for (const auto& [dtype, n] :
           {std::pair{DType::F32, 40}, {DType::Q8_0, 1}, {DType::BF16, 18}, {DType::F16, 33}}) {
        bytes.push_back(random_weight(dtype, n * kDim, random));
        targets.push_back({.weight = device.weight(dtype, n, kDim, bytes.back()),
                           .bias = {},
                           .out = device.output(kRows, n, Layout::Tight)});
      }
      if (together) device.backend().linear({.x = x, .targets = targets});
      std::vector<float> all;
      for (const LinearTarget& target : targets) {
        if (!together) device.backend().linear({.x = x, .targets = {&target, 1}});
        const std::vector<float> one = device.read(target.out);
        all.insert(all.end(), one.begin(), one.end());
      }
      return all;
    });
  };
  expect_same_bits(run_targets(true), run_targets(false), "four targets");
}

std::vector<float> multiply(Backend& backend, const WeightSource& source,
                            std::span<const float> x) {
  Device device(backend);
  auto weight = backend.load_weight(source);
  CHECK(weight.ok(), weight.error().message);
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / source.cols;
  const TensorView out = device.output(rows, source.rows, Layout::Tight);
  const LinearTarget target = {.weight = &weight.value(), .bias = {}, .out = out};
  backend.linear({.x = device.floats(x, {rows, source.cols}), .targets = {&target, 1}});
  return device.read(out);
}

// Weight rows are outputs: y = W · x, whatever the shape.
TEST_P(Linear, WeightRowsAreOutputs) {
  const std::vector<float> w = {1, 2, 3, 4, 5, 6};
  const std::vector<float> x = {1, 10, 100};
  const auto bytes = std::as_bytes(std::span(w));
  const WeightSource source = {.name = "w", .rows = 2, .cols = 3, .row_stride = 3, .bytes = bytes};
  EXPECT_EQ(multiply(*backend_, source, x), (std::vector<float>{321, 654}));
  EXPECT_EQ(multiply(*reference_, source, x), (std::vector<float>{321, 654}));
}

// Conv1D keeps (in, out): the same matrix through strides gives the same bits as its transpose.
TEST_P(Linear, TransposedLoadEqualsThePlainOne) {
  Random random(34);
  constexpr std::int64_t kOut = 21;
  constexpr std::int64_t kIn = 35;
  const std::vector<float> x = random.numbers(2 * kIn);
  const std::vector<float> plain = random.numbers(kOut * kIn);
  std::vector<float> transposed(plain.size());
  for (std::size_t o = 0; o < kOut; ++o) {
    for (std::size_t i = 0; i < kIn; ++i) transposed[i * kOut + o] = plain[o * kIn + i];
  }
  const WeightSource straight = {.name = "w",
                                 .rows = kOut,
                                 .cols = kIn,
                                 .row_stride = kIn,
                                 .bytes = std::as_bytes(std::span(plain))};
  const WeightSource conv1d = {.name = "w",
                               .rows = kOut,
                               .cols = kIn,
                               .row_stride = 1,
                               .col_stride = kOut,
                               .bytes = std::as_bytes(std::span(transposed))};
  expect_same_bits(multiply(*backend_, conv1d, x), multiply(*backend_, straight, x), "Conv1D");
}

TEST_P(Linear, WeightsMayStartAtAnyAddress) {
  Random random(35);
  for (const DType dtype : {DType::F32, DType::F16, DType::Q8_0, DType::Q4_K, DType::Q6_K}) {
    const std::vector<std::byte> bytes = random_weight(dtype, 3 * 256, random);
    const std::vector<float> x = random.numbers(256);
    std::vector<std::byte> shifted(bytes.size() + 1);
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
    WeightSource source = {
        .name = "w", .dtype = dtype, .rows = 3, .cols = 256, .row_stride = 256, .bytes = bytes};
    const std::vector<float> expected = multiply(*backend_, source, x);
    source.bytes = std::span(shifted).subspan(1);
    expect_same_bits(multiply(*backend_, source, x), expected, tensor::name(dtype));
  }
}

// What every other backend is held against, held against the definition: bit for bit, however many
// rows are summed side by side and by how many threads.
TEST(ReferenceLinear, IsTheSumInItsOrder) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kWidth = 100;
  for (const std::int64_t n : {1, 4, 7, 130}) {
    const auto at = [](std::int64_t row, std::int64_t column, std::int64_t width) {
      return static_cast<std::size_t>(row * width + column);
    };
    Random random(static_cast<std::uint64_t>(n));
    const std::vector<float> w = random.numbers(n * kWidth);
    const std::vector<float> bias = random.numbers(n);
    const std::vector<float> x = random.numbers(kRows * kWidth);
    std::vector<float> expected = random.numbers(kRows * n);
    const auto backend = make_backend("reference").take();
    Device device(*backend);
    const TensorView out = device.floats(expected, {kRows, n});
    const LinearTarget target = {
        .weight = device.weight(DType::F32, n, kWidth, std::as_bytes(std::span(w))),
        .bias = device.floats(bias, {n}),
        .out = out,
        .accumulate = true};
    backend->linear({.x = device.floats(x, {kRows, kWidth}), .targets = {&target, 1}});
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t row = 0; row < n; ++row) {
        double sum = bias[static_cast<std::size_t>(row)];
        for (std::int64_t i = 0; i < kWidth; ++i)
          sum += static_cast<double>(x[at(r, i, kWidth)]) * w[at(row, i, kWidth)];
        float& value = expected[at(r, row, n)];
        value = static_cast<float>(sum + value);
      }
    }
    expect_same_bits(device.read(out), expected, std::to_string(n));
  }
}

// On the CPU: a process that has a CUDA device open must not fork, which death tests do.
TEST(LinearDeathTest, UnreservedSizesAndUnforeseenUsesAreBugsOfTheCaller) {
  const auto backend = make({.label = "", .backend = "cpu", .isa = "", .threads = 1}, kLimits);
  Device device(*backend);
  const LinearCase wide = {DType::F16, 1, kLimits.inputs + 100, 4};
  EXPECT_DEATH(linear_op(wide)(device), "larger than the limits given to reserve");
  const std::vector<float> w(6);
  const WeightSource table = {.name = "w",
                              .rows = 2,
                              .cols = 3,
                              .row_stride = 3,
                              .use = WeightUse::LookUp,
                              .bytes = std::as_bytes(std::span(w))};
  EXPECT_DEATH(multiply(*backend, table, std::vector<float>(3)), "invariant broken");
}

}  // namespace
}  // namespace llorch::compute::test
