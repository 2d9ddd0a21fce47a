// Every op of every backend against the reference, products and attention apart, and the promises
// of ops.h: row independence bit for bit, strided views, in place, accumulation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "compute/conformance.h"

namespace llorch::compute::test {
namespace {

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

// Without a style: the angles alone.
Op rope_op(std::optional<RopeStyle> style, std::int64_t rows, std::int64_t heads,
           std::int64_t head_dim, std::int64_t pairs, Layout layout) {
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
    const TensorView angles = device.output(rows, 2 * pairs, layout);
    device.backend().rope_angles({.positions = device.ints(positions),
                                  .frequencies = device.floats(frequencies, {pairs}),
                                  .magnitude = layout == Layout::Tight ? 1.0F : 1.25F,
                                  .out = angles});
    if (!style) return device.read(angles);
    device.backend().rope({.x = x.split_heads(heads), .angles = angles, .style = *style});
    return device.read(x);
  };
}

// Also at position 130,000, where an angle in float would be wrong in the second decimal.
TEST_P(Conformance, RopeAnglesAreExactAtAnyPosition) {
  for (const std::int64_t pairs : {1, 24, 128}) {
    expect_close(kTolerance.rope_angles, 2 * pairs, fmt::format("{} pairs", pairs),
                 rope_op(std::nullopt, 5, 1, 2 * pairs, pairs, Layout::ColumnRange));
  }
}

TEST_P(Conformance, RopeBothStylesAnyHeadSize) {
  for (const RopeStyle style : {RopeStyle::Adjacent, RopeStyle::Half}) {
    for (const std::int64_t head_dim : {2, 16, 48, 64, 96, 256}) {
      for (const std::int64_t pairs : {head_dim / 2, head_dim / 4}) {
        if (pairs == 0) continue;
        const Layout layout = pairs == head_dim / 2 ? Layout::Tight : Layout::ColumnRange;
        expect_close(kTolerance.rope, 3 * head_dim,
                     fmt::format("head {} pairs {}", head_dim, pairs),
                     rope_op(style, 5, 3, head_dim, pairs, layout));
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
      const TensorView angles = device.output(1, 4, Layout::Tight);
      device.backend().rope_angles({.positions = device.ints(positions),
                                    .frequencies = device.floats(frequencies, {2}),
                                    .out = angles});
      device.backend().rope({.x = view, .angles = angles, .style = style});
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

// gather_rows, softcap and softmax

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

Op softcap_op(std::int64_t rows, std::int64_t dim, bool in_place, Layout layout) {
  return [=](Device& device) {
    Random random(81);
    const TensorView x = device.matrix(random.numbers(rows * dim, 90.0F), rows, dim, layout);
    const TensorView out = in_place ? x : device.output(rows, dim, layout);
    device.backend().softcap({.x = x, .cap = 30.0F, .out = out});
    return device.read(out);
  };
}

TEST_P(Conformance, Softcap) {
  for (const std::int64_t dim : {1, 17, 172, 1500}) {
    for (const bool in_place : {false, true}) {
      const Layout layout = in_place ? Layout::Tight : Layout::ColumnRange;
      expect_close(kTolerance.softcap, dim, fmt::format("dim {} {}", dim, in_place),
                   softcap_op(3, dim, in_place, layout));
    }
  }
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

// Found as floats, for the sake of the fixture.
Op argmax_op(std::int64_t rows, std::int64_t dim, Layout layout,
             const std::function<void(std::vector<float>&)>& change) {
  return [=](Device& device) {
    Random random(91);
    std::vector<float> values = random.numbers(rows * dim, 30.0F);
    for (float& value : values) value = std::round(value);  // ties
    change(values);
    const TensorView out = device.zeros(DType::I32, {rows});
    device.backend().argmax({.x = device.matrix(values, rows, dim, layout), .out = out});
    std::vector<std::int32_t> places(static_cast<std::size_t>(rows));
    device.backend().download(out.data, std::as_writable_bytes(std::span(places)));
    return std::vector<float>(places.begin(), places.end());
  };
}

TEST_P(Conformance, ArgmaxIsTheFirstOfTheLargest) {
  for (const std::int64_t dim : {1, 2, 17, 172, 1500, 152064}) {
    for (const Layout layout : {Layout::Tight, Layout::ColumnRange}) {
      expect_close(0, 1, fmt::format("dim {}", dim),
                   argmax_op(5, dim, layout, [](std::vector<float>&) {}));
    }
  }
}

TEST_P(Conformance, ArgmaxOfRowsThatHaveNoneIsMinusOne) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::size_t place : {0U, 700U, 1499U}) {
    const std::vector<float> found =
        run(argmax_op(6, 1500, Layout::Tight, [&](std::vector<float>& values) {
          values[place] = std::nanf("");
          values[1500 + place] = -std::nanf("");
          values[2 * 1500 + place] = kInfinity;
          std::fill_n(&values[3 * 1500], 1500, -kInfinity);
          std::fill_n(&values[4 * 1500], 1500, -kInfinity);
          values[4 * 1500 + place] = -7;
          values[5 * 1500 + place] = 99;
        }));
    const auto at = static_cast<float>(place);
    EXPECT_EQ(found, (std::vector<float>{-1, -1, -1, -1, at, at}));
  }
}

// Rows of every temperature, peaked and flat; one row has nothing to draw.
Op draw_op(std::int64_t rows, std::int64_t dim) {
  return [=](Device& device) {
    Random random(47);
    std::vector<float> logits = random.numbers(rows * dim);
    std::vector<float> temperatures;
    std::vector<std::int32_t> draws;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < dim; ++i)
        logits[static_cast<std::size_t>(row * dim + i)] *= static_cast<float>(1 + row * row);
      temperatures.push_back(static_cast<float>(row % 4) * 0.5F);
      draws.push_back(static_cast<std::int32_t>(random.bits()));
      draws.push_back(static_cast<std::int32_t>(random.bits() & 0x1FFFFFU));
    }
    logits[static_cast<std::size_t>((rows - 1) * dim)] = std::nanf("");
    const TensorView out = device.ints(std::vector<std::int32_t>(static_cast<std::size_t>(rows)));
    device.backend().draw({.x = device.floats(logits, {rows, dim}),
                           .temperatures = device.floats(temperatures, {rows}),
                           .draws = device.ints(draws, {rows, 2}),
                           .out = out});
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
    device.backend().download(out.data, std::as_writable_bytes(std::span(ids)));
    return std::vector<float>(ids.begin(), ids.end());
  };
}

TEST_P(Conformance, DrawsTheTokensThatTheReferenceDraws) {
  if (!backend_->can_draw()) return;  // logits are fetched instead
  for (const std::int64_t dim : {1, 2, 63, 1024, 1025, 32000, 152064, 700000})
    expect_close(0, 1, fmt::format("{} ids", dim), draw_op(9, dim));
}

// Each row another rule; peaked, flat and all equal rows, rows with ties.
Op choose_op(std::int64_t dim) {
  return [=](Device& device) {
    Random random(48);
    std::vector<float> logits;
    std::vector<std::int32_t> rules;
    std::int64_t rows = 0;
    for (const std::int32_t top_k : {0, 1, 40, 3000}) {
      for (const float top_p : {1.0F, 0.9F, 0.3F}) {
        for (const float min_p : {0.0F, 0.02F}) {
          const int kind = static_cast<int>(rows++ % 4);
          for (std::int64_t i = 0; i < dim; ++i) {
            const float number = random.number(2.0F);
            logits.push_back(kind == 0   ? 12 * number
                             : kind == 1 ? number
                             : kind == 2 ? 1.5F
                                         : std::round(8 * number));
          }
          if (rows % 5 == 0) logits.back() = -std::numeric_limits<float>::infinity();
          const auto least = static_cast<std::uint64_t>(std::ldexp(static_cast<double>(min_p), 40));
          const ChoiceRule rule{
              .temperature = rows % 7 == 0 ? 0.0F : 0.9F,
              .top_k = top_k < dim ? top_k : 0,
              .has_top_p = top_p < 1 ? 1 : 0,
              .top_p =
                  top_p < 1 ? static_cast<std::uint32_t>(static_cast<double>(top_p) * 0x1p32) : 0,
              .draw = {static_cast<std::uint32_t>(random.bits()),
                       static_cast<std::uint32_t>(random.bits() & 0x1FFFFFU)},
              .least = {static_cast<std::uint32_t>(least),
                        static_cast<std::uint32_t>(least >> 32)}};
          const auto words = std::bit_cast<std::array<std::int32_t, kChoiceWords>>(rule);
          rules.insert(rules.end(), words.begin(), words.end());
        }
      }
    }
    const TensorView out = device.ints(std::vector<std::int32_t>(static_cast<std::size_t>(rows)));
    device.backend().choose({.x = device.floats(logits, {rows, dim}),
                             .rules = device.ints(rules, {rows, kChoiceWords}),
                             .out = out});
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
    device.backend().download(out.data, std::as_writable_bytes(std::span(ids)));
    return std::vector<float>(ids.begin(), ids.end());
  };
}

TEST_P(Conformance, ChoosesTheTokensThatTheReferenceChooses) {
  if (!backend_->can_choose()) return;  // logits are fetched instead
  for (const std::int64_t dim : {1, 2, 63, 1024, 2049, 32000, 152064})
    expect_close(0, 1, fmt::format("{} ids", dim), choose_op(dim));
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
      expect_prefix("rope", rope_op(style, rows, 2, 48, 24, tight),
                    rope_op(style, 17, 2, 48, 24, tight));
    }
    expect_prefix("softcap", softcap_op(rows, 333, false, tight),
                  softcap_op(17, 333, false, tight));
    expect_prefix("softmax", softmax_op(rows, 333, 4.0F, false), softmax_op(17, 333, 4.0F, false));
    for (const auto kind : {Activation::GeluTanh, Activation::GeluErf, Activation::Silu}) {
      expect_prefix("activation", activation_op(kind, rows, 172, true, false, tight),
                    activation_op(kind, 17, 172, true, false, tight));
    }
  }
}

// On the CPU: a process that has a CUDA device open must not fork, which death tests do.
TEST(ConformanceDeathTest, WrongShapesAreBugsOfTheCaller) {
  const auto backend = make({.label = "", .backend = "cpu", .isa = "", .threads = 1}, kLimits);
  Device device(*backend);
  const TensorView x = device.zeros(DType::F32, {2, 8});
  const TensorView out = device.zeros(DType::F32, {2, 9});
  const TensorView weight = device.zeros(DType::F32, {8});
  EXPECT_DEATH(backend->rms_norm({.x = x, .weight = weight, .epsilon = 0, .out = out}),
               "invariant broken");
}

}  // namespace
}  // namespace llorch::compute::test
