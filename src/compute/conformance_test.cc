// Every op of every backend against the reference, and the promises of ops.h: row independence bit
// for bit, strided views, in place, accumulation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "compute/dequantize.h"
#include "compute/test_backends.h"
#include "compute/test_tensors.h"

namespace llorch::compute::test {
namespace {

// How far a result may be from the reference, relative to the largest magnitude in its row. Zero is
// bit for bit.
struct Tolerance {
  double embed = 0;
  double layer_norm = 2e-6;
  double rms_norm = 1e-6;
  double linear = 1e-6;
  double activation = 2e-6;
  double rope = 1e-6;
  double attention = 5e-6;
  double gather_rows = 0;
  double softmax = 2e-6;
};
constexpr Tolerance kTolerance;

constexpr StepLimits kLimits = {.rows = 64, .columns = 1024, .context = 512};

std::vector<DType> decodable_types() {
  std::vector<DType> types;
  for (const tensor::DTypeInfo& type : tensor::all_dtypes()) {
    if (can_dequantize(type.dtype)) types.push_back(type.dtype);
  }
  return types;
}

// Runs something on a backend and returns what came out.
using Op = std::function<std::vector<float>(Device&)>;

class Conformance : public WithBackend {
 protected:
  Conformance() : WithBackend(kLimits) {}

  std::vector<float> run(const Op& op) {
    Device device(*backend_);
    return op(device);
  }

  void expect_close(double tolerance, std::int64_t row_elems, const std::string& what, const Op& op,
                    double floor = 1e-30) {
    SCOPED_TRACE(what);
    Device reference(*reference_);
    const std::vector<float> expected = op(reference);
    const std::vector<float> found = run(op);
    ASSERT_EQ(found.size(), expected.size());
    if (tolerance == 0) return expect_same_bits(found, expected, what);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t row = i - i % static_cast<std::size_t>(row_elems);
      double largest = floor;
      for (std::size_t j = row; j < row + static_cast<std::size_t>(row_elems); ++j) {
        if (std::isfinite(expected[j]))
          largest = std::max(largest, std::abs(static_cast<double>(expected[j])));
      }
      if (std::isinf(expected[i])) {
        ASSERT_EQ(found[i], expected[i]) << "value " << i;
        continue;
      }
      const double error =
          std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
      ASSERT_LE(error, tolerance * largest)
          << "value " << i << ": " << found[i] << ", expected " << expected[i];
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Every, Conformance, testing::ValuesIn(backends_under_test()), label_of);

// embed

Op embed_op(DType dtype, std::int64_t dim, bool accumulate, Layout layout) {
  return [=](Device& device) {
    Random random(11);
    constexpr std::int64_t kIds = 9;
    const std::vector<std::byte> table = random_weight(dtype, kIds * dim, random);
    const std::vector<std::int32_t> ids = {8, 0, 3, 3, 7};
    const TensorView out = device.matrix(random.numbers(5 * dim), 5, dim, layout);
    device.backend().embed({.table = device.weight(dtype, kIds, dim, table),
                            .ids = device.ints(ids),
                            .out = out,
                            .accumulate = accumulate,
                            .scale = dim == 37 ? 11.3F : 1.0F});
    return device.read(out);
  };
}

TEST_P(Conformance, EmbedIsExactForEveryType) {
  for (const DType dtype : decodable_types()) {
    for (const bool accumulate : {false, true}) {
      const std::int64_t dim = tensor::is_block_type(dtype) ? 512 : 37;
      expect_close(kTolerance.embed, dim, std::string(tensor::name(dtype)),
                   embed_op(dtype, dim, accumulate, Layout::ColumnRange));
    }
  }
}

// norms

Op layer_norm_op(std::int64_t rows, std::int64_t dim, bool bias, bool in_place, Layout layout) {
  return [=](Device& device) {
    Random random(21);
    Random weights(121);
    const TensorView x = device.matrix(random.numbers(rows * dim, 3.0F), rows, dim, layout);
    const TensorView weight = device.floats(weights.numbers(dim), {dim});
    const TensorView biases = device.floats(weights.numbers(dim), {dim});
    const TensorView out = in_place ? x : device.output(rows, dim, layout);
    device.backend().layer_norm({.x = x,
                                 .weight = weight,
                                 .bias = bias ? biases : TensorView(),
                                 .epsilon = 1e-5F,
                                 .out = out});
    return device.read(out);
  };
}

Op rms_norm_op(std::int64_t rows, std::int64_t dim, bool in_place, Layout layout) {
  return [=](Device& device) {
    Random random(22);
    Random weights(122);
    const TensorView x = device.matrix(random.numbers(rows * dim, 3.0F), rows, dim, layout);
    const TensorView weight = device.floats(weights.numbers(dim, 7.0F), {dim});
    const TensorView out = in_place ? x : device.output(rows, dim, layout);
    device.backend().rms_norm({.x = x, .weight = weight, .epsilon = 1e-6F, .out = out});
    return device.read(out);
  };
}

// Heads are rows of their own; the result may be added to what is there.
Op rms_norm_heads_op(std::int64_t heads, std::int64_t dim, bool accumulate, Layout layout) {
  return [=](Device& device) {
    constexpr std::int64_t kRows = 5;
    Random random(23);
    Random weights(123);
    const std::int64_t width = heads * dim;
    const TensorView x = device.matrix(random.numbers(kRows * width, 3.0F), kRows, width, layout);
    const TensorView weight = device.floats(weights.numbers(dim, 2.0F), {dim});
    const TensorView sum = device.matrix(random.numbers(kRows * width), kRows, width, layout);
    const TensorView out = accumulate ? sum : x;
    device.backend().rms_norm({.x = x.split_heads(heads),
                               .weight = weight,
                               .epsilon = 1e-6F,
                               .out = out.split_heads(heads),
                               .accumulate = accumulate});
    return device.read(out);
  };
}

TEST_P(Conformance, RmsNormOfHeadsAndOntoTheResidual) {
  for (const std::int64_t heads : {1, 3, 8}) {
    for (const std::int64_t dim : {16, 37, 128}) {
      for (const bool accumulate : {false, true}) {
        expect_close(kTolerance.rms_norm, dim,
                     fmt::format("{} heads of {}, accumulate {}", heads, dim, accumulate),
                     rms_norm_heads_op(heads, dim, accumulate, Layout::ColumnRange));
      }
    }
  }
}

TEST_P(Conformance, Norms) {
  for (const std::int64_t rows : {1, 17}) {
    for (const std::int64_t dim : {1, 15, 64, 172, 288, 2051}) {
      for (const bool flag : {false, true}) {
        const Layout layout = flag ? Layout::ColumnRange : Layout::Tight;
        const std::string what = fmt::format("{} x {}, {}", rows, dim, flag);
        // A single value minus its mean is zero: only the bias is left, and nothing to be relative
        // to.
        if (dim > 1)
          expect_close(kTolerance.layer_norm, dim, what,
                       layer_norm_op(rows, dim, flag, !flag, layout));
        expect_close(kTolerance.rms_norm, dim, what, rms_norm_op(rows, dim, flag, layout));
      }
    }
  }
}

TEST_P(Conformance, EpsilonIsInsideTheRootAndVarianceIsBiased) {
  const std::vector<float> x = {1.0F, 3.0F};  // mean 2, biased variance 1
  const std::vector<float> ones = {1.0F, 1.0F};
  const std::vector<float> found = run([&](Device& device) {
    const TensorView out = device.output(1, 2, Layout::Tight);
    device.backend().layer_norm({.x = device.floats(x, {1, 2}),
                                 .weight = device.floats(ones, {2}),
                                 .bias = {},
                                 .epsilon = 3.0F,
                                 .out = out});
    return device.read(out);
  });
  EXPECT_FLOAT_EQ(found[0], -0.5F);
  EXPECT_FLOAT_EQ(found[1], 0.5F);
}

// linear

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

TEST_P(Conformance, LinearForEveryTypeAndOddShapes) {
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

TEST_P(Conformance, LinearWithEveryCombinationOfBiasAccumulationAndStrides) {
  for (int bits = 0; bits < 8; ++bits) {
    const Layout layout = (bits & 4) != 0 ? Layout::ColumnRange : Layout::Tight;
    const LinearCase c = {DType::F32, 5, 172, 21, (bits & 1) != 0, (bits & 2) != 0, layout};
    expect_close(kTolerance.linear, c.n, to_string(c), linear_op(c), magnitude(c));
  }
}

TEST_P(Conformance, LinearRowsDoNotDependOnTheirNeighbours) {
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

TEST_P(Conformance, SeveralTargetsEqualOneCallEach) {
  const auto run_targets = [&](bool together) {
    return run([&](Device& device) {
      Random random(33);
      constexpr std::int64_t kRows = 3;
      constexpr std::int64_t kDim = 96;
      const TensorView x = device.floats(random.numbers(kRows * kDim), {kRows, kDim});
      std::vector<std::vector<std::byte>> bytes;
      std::vector<LinearTarget> targets;
      for (const auto& [dtype, n] :
           {std::pair{DType::F32, 40}, {DType::Q8_0, 1}, {DType::F16, 33}}) {
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
  expect_same_bits(run_targets(true), run_targets(false), "three targets");
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
TEST_P(Conformance, WeightRowsAreOutputs) {
  const std::vector<float> w = {1, 2, 3, 4, 5, 6};
  const std::vector<float> x = {1, 10, 100};
  const auto bytes = std::as_bytes(std::span(w));
  const WeightSource source = {.name = "w", .rows = 2, .cols = 3, .row_stride = 3, .bytes = bytes};
  EXPECT_EQ(multiply(*backend_, source, x), (std::vector<float>{321, 654}));
  EXPECT_EQ(multiply(*reference_, source, x), (std::vector<float>{321, 654}));
}

// Conv1D keeps (in, out): the same matrix through strides gives the same bits as its transpose.
TEST_P(Conformance, TransposedLoadEqualsThePlainOne) {
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

TEST_P(Conformance, WeightsMayStartAtAnyAddress) {
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

// activation

Op activation_op(Activation kind, std::int64_t rows, std::int64_t dim, bool gated, bool in_place,
                 Layout layout) {
  return [=](Device& device) {
    Random random(41);
    Random gates(141);
    std::vector<float> values = random.numbers(rows * dim, 8.0F);
    const std::vector<float> extremes = {0.0F, -0.0F, 100.0F, -100.0F, 1e-20F, -1e4F, 1e4F};
    for (std::size_t i = 0; i < extremes.size() && i < values.size(); ++i) values[i] = extremes[i];
    const TensorView x = device.matrix(values, rows, dim, layout);
    const TensorView gate = device.matrix(gates.numbers(rows * dim), rows, dim, layout);
    const TensorView out = in_place ? x : device.output(rows, dim, layout);
    device.backend().activation(
        {.kind = kind, .x = x, .gate_with = gated ? gate : TensorView(), .out = out});
    return device.read(out);
  };
}

TEST_P(Conformance, Activations) {
  using enum Activation;
  for (const Activation kind : {GeluTanh, GeluErf, Silu, Relu}) {
    for (const std::int64_t dim : {1, 17, 172}) {
      for (const bool flag : {false, true}) {
        const Layout layout = flag ? Layout::Tight : Layout::ColumnRange;
        // Every value relative to itself, or to one where it is smaller.
        expect_close(kTolerance.activation, 1,
                     fmt::format("kind {} dim {} {}", static_cast<int>(kind), dim, flag),
                     activation_op(kind, 3, dim, flag, !flag, layout), 1.0);
      }
    }
  }
}

TEST_P(Conformance, GeluIsTheTanhFormOrTheExactOne) {
  const auto at_one = [&](Activation kind) {
    return run([&](Device& device) {
      const std::vector<float> x = {2.0F};
      const TensorView view = device.floats(x, {1, 1});
      device.backend().activation({.kind = kind, .x = view, .gate_with = {}, .out = view});
      return device.read(view);
    })[0];
  };
  EXPECT_NEAR(at_one(Activation::GeluTanh), 1.9545977, 1e-6);
  EXPECT_NEAR(at_one(Activation::GeluErf), 1.9544997, 1e-6);
}

// rope

Op rope_op(RopeStyle style, std::int64_t rows, std::int64_t heads, std::int64_t head_dim,
           std::int64_t pairs, float magnitude, Layout layout) {
  return [=](Device& device) {
    Random random(51);
    Random places(151);
    const TensorView x =
        device.matrix(random.numbers(rows * heads * head_dim), rows, heads * head_dim, layout);
    std::vector<std::int32_t> positions;
    for (std::int64_t r = 0; r < rows; ++r)
      positions.push_back(static_cast<std::int32_t>(places.below(130000)));
    std::vector<float> frequencies;
    for (std::int64_t i = 0; i < pairs; ++i) {
      frequencies.push_back(std::pow(10000.0F, -static_cast<float>(i) / static_cast<float>(pairs)));
    }
    device.backend().rope({.x = x.split_heads(heads),
                           .positions = device.ints(positions),
                           .frequencies = device.floats(frequencies, {pairs}),
                           .style = style,
                           .magnitude = magnitude});
    return device.read(x);
  };
}

TEST_P(Conformance, RopeBothStylesAnyHeadSize) {
  for (const RopeStyle style : {RopeStyle::Adjacent, RopeStyle::Half}) {
    for (const std::int64_t head_dim : {2, 16, 48, 64, 96, 256}) {
      for (const std::int64_t pairs : {head_dim / 2, head_dim / 4}) {
        if (pairs == 0) continue;
        const Layout layout = pairs == head_dim / 2 ? Layout::Tight : Layout::ColumnRange;
        expect_close(
            kTolerance.rope, 3 * head_dim, fmt::format("head {} pairs {}", head_dim, pairs),
            rope_op(style, 5, 3, head_dim, pairs, layout == Layout::Tight ? 1.0F : 1.25F, layout));
      }
    }
  }
}

// Position 1 with frequencies π/2 and 0 turns the first pair by a right angle and leaves the
// second.
TEST_P(Conformance, RopePairsNeighboursOrHalves) {
  const auto rotate = [&](RopeStyle style) {
    return run([&](Device& device) {
      const std::vector<float> x = {1, 2, 3, 4};
      const std::vector<float> frequencies = {1.57079637F, 0.0F};
      const std::vector<std::int32_t> positions = {1};
      const TensorView view = device.floats(x, {1, 1, 4});
      device.backend().rope({.x = view,
                             .positions = device.ints(positions),
                             .frequencies = device.floats(frequencies, {2}),
                             .style = style});
      return device.read(view);
    });
  };
  const std::vector<float> adjacent = rotate(RopeStyle::Adjacent);
  const std::vector<float> half = rotate(RopeStyle::Half);
  const std::vector<float> expected_adjacent = {-2, 1, 3, 4};
  const std::vector<float> expected_half = {-3, 2, 1, 4};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(adjacent[i], expected_adjacent[i], 1e-6);
    EXPECT_NEAR(half[i], expected_half[i], 1e-6);
  }
}

// gather_rows and softmax

TEST_P(Conformance, GatherRowsCopiesExactly) {
  expect_close(kTolerance.gather_rows, 19, "gather", [](Device& device) {
    Random random(61);
    const TensorView x = device.matrix(random.numbers(6 * 19), 6, 19, Layout::ColumnRange);
    const TensorView out = device.output(4, 19, Layout::ColumnRange);
    const std::vector<std::int32_t> indices = {5, 0, 0, 3};
    device.backend().gather_rows({.x = x, .indices = device.ints(indices), .out = out});
    return device.read(out);
  });
}

Op softmax_op(std::int64_t rows, std::int64_t dim, float scale, bool in_place) {
  return [=](Device& device) {
    Random random(71);
    const TensorView x =
        device.matrix(random.numbers(rows * dim, scale), rows, dim, Layout::ColumnRange);
    const TensorView out = in_place ? x : device.output(rows, dim, Layout::Tight);
    device.backend().softmax({.x = x, .out = out});
    return device.read(out);
  };
}

TEST_P(Conformance, Softmax) {
  for (const std::int64_t dim : {1, 5, 16, 172, 1500}) {
    for (const float scale : {1.0F, 500.0F}) {
      expect_close(kTolerance.softmax, dim, fmt::format("dim {} scale {}", dim, scale),
                   softmax_op(3, dim, scale, scale == 1.0F));
    }
  }
}

// A float sum of so many tiny values once came out as zero probabilities.
TEST_P(Conformance, SoftmaxOverALargeVocabularySumsToOne) {
  for (const float scale : {0.0F, 12.0F}) {
    const std::vector<float> probabilities = run(softmax_op(1, 152064, scale, true));
    EXPECT_NEAR(std::accumulate(probabilities.begin(), probabilities.end(), 0.0), 1.0, 1e-6);
    EXPECT_GT(*std::min_element(probabilities.begin(), probabilities.end()), 0.0F);
  }
}

TEST_P(Conformance, RowOpsDoNotDependOnTheirNeighbours) {
  // The rows of a short call are the first rows of a long one: their values are drawn in order.
  const auto expect_prefix = [&](const std::string& what, const Op& few, const Op& many) {
    const std::vector<float> short_run = run(few);
    const std::vector<float> long_run = run(many);
    expect_same_bits(short_run, std::span(long_run).first(short_run.size()), what);
  };
  const Layout tight = Layout::Tight;
  for (const std::int64_t rows : {1, 5}) {
    expect_prefix("layer norm", layer_norm_op(rows, 172, true, false, tight),
                  layer_norm_op(17, 172, true, false, tight));
    expect_prefix("rms norm", rms_norm_op(rows, 172, false, tight),
                  rms_norm_op(17, 172, false, tight));
    for (const auto style : {RopeStyle::Adjacent, RopeStyle::Half}) {
      expect_prefix("rope", rope_op(style, rows, 2, 48, 24, 1.0F, tight),
                    rope_op(style, 17, 2, 48, 24, 1.0F, tight));
    }
    expect_prefix("softmax", softmax_op(rows, 333, 4.0F, false), softmax_op(17, 333, 4.0F, false));
    for (const auto kind : {Activation::GeluTanh, Activation::GeluErf, Activation::Silu}) {
      expect_prefix("activation", activation_op(kind, rows, 172, true, false, tight),
                    activation_op(kind, 17, 172, true, false, tight));
    }
  }
}

// On the CPU: a process that has a CUDA device open must not fork, which death tests do.
TEST(ConformanceDeathTest, WrongShapesAndUnreservedSizesAreBugsOfTheCaller) {
  const auto backend = make({.label = "", .backend = "cpu", .isa = "", .threads = 1}, kLimits);
  Device device(*backend);
  const TensorView x = device.zeros(DType::F32, {2, 8});
  const TensorView out = device.zeros(DType::F32, {2, 9});
  const TensorView weight = device.zeros(DType::F32, {8});
  EXPECT_DEATH(backend->rms_norm({.x = x, .weight = weight, .epsilon = 0, .out = out}),
               "invariant broken");
  const LinearCase wide = {DType::F16, 1, kLimits.columns + 100, 4};
  EXPECT_DEATH(linear_op(wide)(device), "larger than the limits given to reserve");
}

}  // namespace
}  // namespace llorch::compute::test
