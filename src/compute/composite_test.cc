// Composite ops of every backend: the bits of the ops they are made of, whatever a backend does
// instead, and fewer meetings of threads where there are any.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "compute/conformance.h"

namespace llorch::compute::test {
namespace {

// Which body of a composite op runs: the backend's own, or the default that calls its parts.
enum class Body { Own, Parts };

struct Outcome {
  std::vector<float> values;
  std::int64_t meetings = 0;
};

class Composite : public Conformance {
 protected:
  using CompositeOp = std::function<std::vector<float>(Device&, Body)>;

  Outcome run_body(Backend& backend, const CompositeOp& op, Body body) {
    Device device(backend);
    const std::int64_t before = backend.thread_meetings();
    Outcome outcome{.values = op(device, body)};
    outcome.meetings = backend.thread_meetings() - before;
    return outcome;
  }

  // F32 where all products with weights of these types take their input as it is.
  InputForm widest_form(std::initializer_list<DType> weights) const {
    InputForm form = InputForm::F32;
    for (const DType weight : weights) {
      if (backend_->input_form(weight) != InputForm::F32) form = backend_->input_form(weight);
    }
    return form;
  }

  // `meetings`: own and parts' where threads were sent off, i.e. with several threads and rows.
  struct Meetings {
    std::int64_t own, parts;
  };
  // `form`: in which the products take their input.
  void expect_parts(const std::string& what, const CompositeOp& op, double tolerance,
                    std::int64_t row_elems, std::optional<Meetings> meetings = {},
                    InputForm form = InputForm::F32) {
    SCOPED_TRACE(what);
    const Outcome own = run_body(*backend_, op, Body::Own);
    const Outcome parts = run_body(*backend_, op, Body::Parts);
    expect_same_bits(own.values, parts.values, what);
    // A product that rounds its input is held to the reference in linear_test; behind a norm, whose
    // last bit decides where it rounds to, only the parts are an oracle.
    if (form == InputForm::F32) {
      expect_close(tolerance, row_elems, what,
                   [&](Device& device) { return op(device, Body::Own); });
    }
    if (!meetings || GetParam().threads < 2) return;
    EXPECT_EQ(own.meetings, meetings->own);
    EXPECT_EQ(parts.meetings, meetings->parts);
  }
};

INSTANTIATE_TEST_SUITE_P(Every, Composite, testing::ValuesIn(backends_under_test()), label_of);

constexpr double kNormedProduct = 4e-6;  // a norm's and a product's errors together

// Few values: each thread norms all rows. Many: they are shared out first.
constexpr std::int64_t kFewRows = 4;
constexpr std::int64_t kManyRows = 33;
constexpr std::int64_t kDim = 256;

RowNorm random_norm(Device& device, NormKind kind, Random& random) {
  return {.kind = kind,
          .weight = device.floats(random.numbers(kDim), {kDim}),
          .bias = kind == NormKind::LayerNorm ? device.floats(random.numbers(kDim), {kDim})
                                              : TensorView(),
          .epsilon = 1e-5F};
}

// Some ids as they are, some that another step found; two tables of frequencies, or none.
TEST_P(Composite, WhatAStepBeginsWith) {
  constexpr std::int64_t kIds = 70;
  constexpr std::int64_t kWidth = 512;
  constexpr std::int64_t kTogether = 16;  // values that are held to the largest of them
  const auto op = [](std::int64_t rows, std::size_t num_angles, bool has_found, DType dtype) {
    return [=](Device& device, Body body) {
      Random random(95);
      const std::vector<std::byte> table = random_weight(dtype, kIds * kWidth, random);
      std::vector<std::int32_t> ids;
      std::vector<std::int32_t> positions;
      const std::vector<std::int32_t> found = {7, -1, 69, 12};
      for (std::int64_t i = 0; i < rows; ++i) {
        const bool is_found = has_found && i % 3 != 1;
        ids.push_back(static_cast<std::int32_t>(is_found ? -1 - i % 4 : (11 * i + 5) % kIds));
        positions.push_back(static_cast<std::int32_t>(17 * i));
      }
      const TensorView out = device.output(rows, kWidth, Layout::ColumnRange);
      std::vector<RopeAnglesArgs> angles;
      for (std::size_t i = 0; i < num_angles; ++i) {
        const std::int64_t pairs = 24 + 16 * static_cast<std::int64_t>(i);
        angles.push_back({.positions = device.ints(positions),
                          .frequencies = device.floats(random.numbers(pairs), {pairs}),
                          .magnitude = 1.25F,
                          .out = device.output(rows, 2 * pairs, Layout::ColumnRange)});
      }
      const BeginRowsArgs args = {.embed = {.table = device.weight(dtype, kIds, kWidth, table),
                                            .ids = device.ints(ids),
                                            .out = out,
                                            .scale = 3.0F},
                                  .found = has_found ? device.ints(found) : TensorView(),
                                  .angles = angles};
      if (body == Body::Own) {
        device.backend().begin_rows(args);
      } else {
        device.backend().Backend::begin_rows(args);
      }
      std::vector<float> values = device.read(out);
      for (const RopeAnglesArgs& some : angles) {
        const std::vector<float> more = device.read(some.out);
        values.insert(values.end(), more.begin(), more.end());
      }
      return values;
    };
  };
  for (const DType dtype : {DType::F32, DType::F16, DType::Q8_0, DType::Q4_K}) {
    for (const std::size_t num_angles : {0U, 1U, 2U, 3U}) {
      for (const bool has_found : {false, true}) {
        const std::string what =
            fmt::format("{}, {} angles, found {}", tensor::name(dtype), num_angles, has_found);
        expect_parts(what + ", one row", op(1, num_angles, has_found, dtype), 1e-6, kTogether);
        expect_parts(what + ", many rows", op(kManyRows, num_angles, has_found, dtype), 1e-6,
                     kTogether);
      }
    }
  }
}

TEST_P(Composite, NormAndProducts) {
  const auto op = [](std::int64_t rows, NormKind kind, DType dtype) {
    return [=](Device& device, Body body) {
      Random random(91);
      const TensorView x =
          device.matrix(random.numbers(rows * kDim, 3.0F), rows, kDim, Layout::ColumnRange);
      const std::vector<std::byte> first = random_weight(dtype, 37 * kDim, random);
      const std::vector<std::byte> second = random_weight(DType::F32, 5 * kDim, random);
      const TensorView out = device.output(rows, 42, Layout::ColumnRange);
      const LinearTarget targets[] = {{.weight = device.weight(dtype, 37, kDim, first),
                                       .bias = device.floats(random.numbers(37), {37}),
                                       .out = out.columns(0, 37)},
                                      {.weight = device.weight(DType::F32, 5, kDim, second),
                                       .bias = {},
                                       .out = out.columns(37, 5)}};
      const NormLinearArgs args = {.x = x,
                                   .norm = random_norm(device, kind, random),
                                   .normed = device.output(rows, kDim, Layout::Tight),
                                   .targets = targets};
      if (body == Body::Own) {
        device.backend().norm_linear(args);
      } else {
        device.backend().Backend::norm_linear(args);
      }
      return device.read(out);
    };
  };
  for (const NormKind kind : {NormKind::LayerNorm, NormKind::RmsNorm}) {
    for (const DType dtype : {DType::F32, DType::F16, DType::Q8_0, DType::Q4_K}) {
      const std::string what(tensor::name(dtype));
      // Many rows are prepared in a loop of its own, where there is something to prepare.
      const InputForm form = widest_form({dtype, DType::F32});
      const std::int64_t prepared = form == InputForm::F32 ? 0 : 1;
      expect_parts(what + ", one row", op(1, kind, dtype), kNormedProduct, 42, {{1, 1}}, form);
      expect_parts(what + ", few rows", op(kFewRows, kind, dtype), kNormedProduct, 42, {{1, 2}},
                   form);
      expect_parts(what + ", many rows", op(kManyRows, kind, dtype), kNormedProduct, 42,
                   {{2, 2 + prepared}}, form);
    }
  }
}

// Gate and up apart, in one matrix, or no gate at all; widths that are no multiple of anything.
TEST_P(Composite, FirstHalfOfAnMlp) {
  const auto op = [](std::int64_t rows, std::int64_t dim, bool gated, bool fused, Activation kind) {
    return [=](Device& device, Body body) {
      Random random(92);
      const TensorView x = device.matrix(random.numbers(rows * kDim), rows, kDim, Layout::Tight);
      const std::int64_t width = gated ? 2 * dim : dim;
      const TensorView out = device.output(rows, width, Layout::ColumnRange);
      const std::vector<std::byte> all = random_weight(DType::Q8_0, width * kDim, random);
      std::vector<LinearTarget> targets;
      const std::int64_t part = gated && !fused ? dim : width;
      for (std::int64_t column = 0; column < width; column += part) {
        const std::size_t bytes = all.size() / static_cast<std::size_t>(width / part);
        targets.push_back(
            {.weight = device.weight(
                 DType::Q8_0, part, kDim,
                 std::span(all).subspan(static_cast<std::size_t>(column / part) * bytes, bytes)),
             .bias = {},
             .out = out.columns(column, part)});
      }
      const MlpInArgs args = {.product = {.x = x,
                                          .norm = random_norm(device, NormKind::RmsNorm, random),
                                          .normed = device.output(rows, kDim, Layout::Tight),
                                          .targets = targets},
                              .kind = kind,
                              .gated = gated,
                              .out = out};
      if (body == Body::Own) {
        device.backend().mlp_in(args);
      } else {
        device.backend().Backend::mlp_in(args);
      }
      return device.read(out.columns(0, dim));
    };
  };
  using enum Activation;
  for (const std::int64_t dim : {40, 77, 172}) {
    for (const Activation kind : {GeluTanh, GeluErf, Silu}) {
      for (const auto& [gated, fused] : {std::pair{false, true}, {true, true}, {true, false}}) {
        const std::string what = fmt::format("{} gated {} fused {}", dim, gated, fused);
        const InputForm form = widest_form({DType::Q8_0});
        expect_parts(what + ", one row", op(1, dim, gated, fused, kind), 1e-5, dim, {{1, 1}}, form);
        // The parts are the backend's own norm_linear, and the activation.
        expect_parts(what + ", few rows", op(kFewRows, dim, gated, fused, kind), 1e-5, dim,
                     {{1, 2}}, form);
        expect_parts(what + ", many rows", op(kManyRows, dim, gated, fused, kind), 1e-5, dim,
                     {{2, 3}}, form);
      }
    }
  }
}

struct HeadsCase {
  std::int64_t rows = 5;
  bool normed = false;
  bool rotated = true;
  DType cache = DType::F32;
};

// What is in q, k and the cache afterwards.
TEST_P(Composite, HeadsFromProjectionToCache) {
  constexpr std::int64_t kHeads = 6;
  constexpr std::int64_t kKvHeads = 2;
  constexpr std::int64_t kHeadDim = 32;
  const auto op = [](const HeadsCase& c) {
    return [=](Device& device, Body body) {
      Random random(93);
      const std::int64_t width = (kHeads + 2 * kKvHeads) * kHeadDim;
      const TensorView qkv =
          device.matrix(random.numbers(c.rows * width), c.rows, width, Layout::ColumnRange);
      const TensorView angles =
          device.floats(random.numbers(c.rows * kHeadDim), {c.rows, kHeadDim});
      const TensorView norms[] = {device.floats(random.numbers(kHeadDim), {kHeadDim}),
                                  device.floats(random.numbers(kHeadDim), {kHeadDim})};
      std::vector<std::int32_t> slots;
      for (std::int32_t row = 0; row < c.rows; ++row) slots.push_back(2 * row + 1);
      const std::int64_t blocks = (2 * c.rows + 3) / 4;
      const KvLayer cache = {device.zeros(c.cache, {blocks, kKvHeads, 4, kHeadDim}),
                             device.zeros(c.cache, {blocks, kKvHeads, 4, kHeadDim})};
      const auto part = [&](std::int64_t head, std::int64_t heads) {
        return qkv.columns(head * kHeadDim, heads * kHeadDim).split_heads(heads);
      };
      const PlaceHeadsArgs args = {.q = part(0, kHeads),
                                   .k = part(kHeads, kKvHeads),
                                   .v = part(kHeads + kKvHeads, kKvHeads),
                                   .q_norm = c.normed ? norms[0] : TensorView(),
                                   .k_norm = c.normed ? norms[1] : TensorView(),
                                   .epsilon = 1e-6F,
                                   .angles = c.rotated ? angles : TensorView(),
                                   .style = RopeStyle::Half,
                                   .slots = device.ints(slots),
                                   .cache = cache};
      if (body == Body::Own) {
        device.backend().place_heads(args);
      } else {
        device.backend().Backend::place_heads(args);
      }
      std::vector<float> all = device.read(qkv);
      if (c.cache != DType::F32) return all;
      for (const TensorView& view : {cache.keys, cache.values}) {
        const std::vector<float> stored = device.read(view);
        all.insert(all.end(), stored.begin(), stored.end());
      }
      return all;
    };
  };
  constexpr double kHeadsTolerance = 2e-6;
  expect_parts("one row", op({.rows = 1}), kHeadsTolerance, 32, {{0, 0}});
  expect_parts("rotated", op({}), kHeadsTolerance, 32, {{1, 3}});
  expect_parts("normed", op({.normed = true}), kHeadsTolerance, 32, {{1, 5}});
  expect_parts("neither", op({.rotated = false}), kHeadsTolerance, 32, {{1, 1}});
  expect_parts("many", op({.rows = 50, .normed = true}), kHeadsTolerance, 32, {{1, 5}});
  expect_parts("halves", op({.cache = DType::F16}), kHeadsTolerance, 32, {{1, 3}});
}

TEST_P(Composite, Logits) {
  constexpr std::int64_t kVocab = 203;
  const auto op = [](std::int64_t picked, float softcap, DType dtype) {
    return [=](Device& device, Body body) {
      Random random(94);
      constexpr std::int64_t kRows = 40;
      const TensorView x = device.matrix(random.numbers(kRows * kDim), kRows, kDim, Layout::Tight);
      const std::vector<std::byte> table = random_weight(dtype, kVocab * kDim, random);
      std::vector<std::int32_t> indices;
      for (std::int64_t i = 0; i < picked; ++i)
        indices.push_back(static_cast<std::int32_t>((7 * i + 3) % kRows));
      const TensorView out = device.output(picked, kVocab, Layout::Tight);
      const LogitsArgs args = {.x = x,
                               .indices = device.ints(indices),
                               .norm = random_norm(device, NormKind::RmsNorm, random),
                               .picked = device.output(picked, kDim, Layout::Tight),
                               .weight = device.weight(dtype, kVocab, kDim, table),
                               .out = out,
                               .softcap = softcap};
      if (body == Body::Own) {
        device.backend().logits(args);
      } else {
        device.backend().Backend::logits(args);
      }
      return device.read(out);
    };
  };
  for (const DType dtype : {DType::F32, DType::Q8_0}) {
    for (const float cap : {0.0F, 3.0F}) {
      const std::int64_t capped = cap > 0 ? 1 : 0;
      const std::string what = fmt::format("{} cap {}", tensor::name(dtype), cap);
      const InputForm form = widest_form({dtype});
      const std::int64_t prepared = form == InputForm::F32 ? 0 : 1;
      expect_parts(what + ", one", op(1, cap, dtype), kNormedProduct, kVocab, {{1, 1}}, form);
      expect_parts(what + ", few", op(kFewRows, cap, dtype), kNormedProduct, kVocab,
                   {{1, 3 + capped}}, form);
      expect_parts(what + ", many", op(kManyRows, cap, dtype), kNormedProduct, kVocab,
                   {{2, 3 + prepared + capped}}, form);
    }
  }
}

}  // namespace
}  // namespace llorch::compute::test
