// Projections that end in the cache: the bits of the ops they are made of, whichever way a backend
// takes. A row has them alone too.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "compute/conformance.h"

namespace llorch::compute::test {
namespace {

constexpr std::int64_t kKvHeads = 2;
constexpr std::int64_t kBlockTokens = 4;

struct Case {
  std::int64_t rows = 1;
  std::int64_t inputs = 768;
  std::int64_t heads = 3;
  std::int64_t head_dim = 64;
  std::vector<DType> types = {DType::F16, DType::F16, DType::F16};  // of q, k, v; or of all in one
  DType cache = DType::F16;
  RopeStyle style = RopeStyle::Half;
  std::int64_t turned = 64;  // of each head; 0: none
  bool has_norms = false;
  bool has_bias = true;
  NormKind norm = NormKind::RmsNorm;
};

enum class Body { Own, Parts };

// Weights and what they meet: rows that are the first of those of a larger case are the same.
class Projection {
 public:
  Projection(Device& device, const Case& c) : device_(device), c_(c), random_(97) {
    constexpr std::int64_t kRowsMax = 40;
    const std::vector<float> x = random_.numbers(kRowsMax * c.inputs);
    const std::vector<float> turns =
        random_.numbers(kRowsMax * std::max<std::int64_t>(c.turned, 1));
    const std::int64_t width = (c.heads + 2 * kKvHeads) * c.head_dim;
    qkv = device.output(c.rows, width, Layout::ColumnRange);
    const std::vector<std::int64_t> of_types = widths(width);
    std::int64_t column = 0;
    for (std::size_t i = 0; i < of_types.size(); ++i) {
      bytes_.push_back(random_weight(c.types[i], of_types[i] * c.inputs, random_));
      targets_.push_back({.weight = device.weight(c.types[i], of_types[i], c.inputs, bytes_.back()),
                          .bias = c.has_bias ? numbers(of_types[i]) : TensorView(),
                          .out = qkv.columns(column, of_types[i])});
      column += of_types[i];
    }
    const std::int64_t blocks = (2 * c.rows + kBlockTokens) / kBlockTokens;
    cache = {device.zeros(c.cache, {blocks, kKvHeads, kBlockTokens, c.head_dim}),
             device.zeros(c.cache, {blocks, kKvHeads, kBlockTokens, c.head_dim})};
    args.product = {
        .x = device.matrix(first(x, c.rows * c.inputs), c.rows, c.inputs, Layout::Tight),
        .norm = {.kind = c.norm,
                 .weight = numbers(c.inputs),
                 .bias = c.norm == NormKind::LayerNorm ? numbers(c.inputs) : TensorView(),
                 .epsilon = 1e-5F},
        .normed = device.output(c.rows, c.inputs, Layout::Tight),
        .targets = targets_};
    args.heads = {.q = heads(0, c.heads),
                  .k = heads(c.heads, kKvHeads),
                  .v = heads(c.heads + kKvHeads, kKvHeads),
                  .q_norm = c.has_norms ? numbers(c.head_dim) : TensorView(),
                  .k_norm = c.has_norms ? numbers(c.head_dim) : TensorView(),
                  .epsilon = 1e-6F,
                  .angles = {},
                  .style = c.style,
                  .slots = device.ints(slots()),
                  .cache = cache};
    if (c.turned > 0)
      args.heads.angles = device.floats(first(turns, c.rows * c.turned), {c.rows, c.turned});
  }

  // The heads, and the bits of the cache.
  std::vector<float> values() {
    std::vector<float> all = device_.read(qkv);
    for (const TensorView& view : {cache.keys, cache.values}) {
      const tensor::DTypeInfo& type = tensor::info(view.dtype);
      const std::int64_t bytes = view.elements() / type.block_elems * type.block_bytes;
      std::vector<float> stored(static_cast<std::size_t>(bytes) / sizeof(float));
      device_.backend().download(view.data, std::as_writable_bytes(std::span(stored)));
      all.insert(all.end(), stored.begin(), stored.end());
    }
    return all;
  }

  TensorView qkv;
  KvLayer cache;
  ProjectHeadsArgs args;

 private:
  static std::span<const float> first(const std::vector<float>& values, std::int64_t count) {
    return std::span(values).first(static_cast<std::size_t>(count));
  }
  TensorView numbers(std::int64_t count) { return device_.floats(random_.numbers(count), {count}); }
  TensorView heads(std::int64_t head, std::int64_t count) const {
    return qkv.columns(head * c_.head_dim, count * c_.head_dim).split_heads(count);
  }
  std::vector<std::int64_t> widths(std::int64_t all) const {
    if (c_.types.size() == 1) return {all};
    return {c_.heads * c_.head_dim, kKvHeads * c_.head_dim, kKvHeads * c_.head_dim};
  }
  std::vector<std::int32_t> slots() const {
    std::vector<std::int32_t> found;
    for (std::int32_t row = 0; row < c_.rows; ++row) found.push_back(2 * row + 1);
    return found;
  }

  Device& device_;
  const Case& c_;
  Random random_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<LinearTarget> targets_;
};

class ProjectHeads : public Conformance {
 protected:
  std::vector<float> run(const Case& c, Body body) {
    Device device(*backend_);
    Projection projection(device, c);
    if (body == Body::Own) {
      backend_->project_heads(projection.args);
    } else {
      backend_->norm_linear(projection.args.product);
      backend_->Backend::place_heads(projection.args.heads);
    }
    return projection.values();
  }
  void expect_parts(const std::string& what, const Case& c) {
    SCOPED_TRACE(fmt::format("{}, {} rows, heads of {}", what, c.rows, c.head_dim));
    expect_same_bits(run(c, Body::Own), run(c, Body::Parts), what);
  }
};

INSTANTIATE_TEST_SUITE_P(Every, ProjectHeads, testing::ValuesIn(backends_under_test()), label_of);

TEST_P(ProjectHeads, EveryNumberOfRowsAndSizeOfHeads) {
  for (const std::int64_t head_dim : {32, 80, 128}) {
    for (const std::int64_t rows : {1, 9, 17}) {
      expect_parts("halves", {.rows = rows, .head_dim = head_dim, .turned = head_dim});
      expect_parts(
          "neighbours",
          {.rows = rows, .head_dim = head_dim, .style = RopeStyle::Adjacent, .turned = head_dim});
    }
  }
}

// Each changes how products are spread.
TEST_P(ProjectHeads, WideInputsAndManyOutputs) {
  for (const DType type : {DType::F16, DType::Q4_K}) {
    for (const std::int64_t rows : {1, 4, 12}) {
      expect_parts("wide", {.rows = rows, .inputs = 2048, .types = {type}});
      expect_parts("many", {.rows = rows, .inputs = 256, .heads = 72, .types = {type}});
    }
  }
}

TEST_P(ProjectHeads, EveryTypeAndMixturesOfThem) {
  using enum DType;
  for (const std::vector<DType>& types : std::vector<std::vector<DType>>{{Q8_0, Q8_0, Q8_0},
                                                                         {Q4_K, Q4_K, Q4_K},
                                                                         {Q4_K, Q4_K, Q6_K},
                                                                         {Q5_K, Q5_K, Q6_K},
                                                                         {Q6_K, Q4_0, Q6_K},
                                                                         {F16, F16, F32},
                                                                         {F32, F32, F32},
                                                                         {F16},
                                                                         {Q4_K}}) {
    for (const std::int64_t rows : {1, 6, 16}) {
      for (const RopeStyle style : {RopeStyle::Half, RopeStyle::Adjacent}) {
        std::string what;
        for (const DType type : types) what += std::string(tensor::name(type)) + " ";
        expect_parts(what, {.rows = rows, .types = types, .style = style});
      }
    }
  }
}

TEST_P(ProjectHeads, CachesNormsAndRotations) {
  for (const std::int64_t rows : {1, 7}) {
    for (const DType cache : {DType::F32, DType::F16, DType::Q8_0}) {
      const std::string what(tensor::name(cache));
      expect_parts(what, {.rows = rows, .cache = cache});
      expect_parts(what + " without bias", {.rows = rows, .cache = cache, .has_bias = false});
      expect_parts(what + " not turned", {.rows = rows, .cache = cache, .turned = 0});
      expect_parts(what + " turned in part", {.rows = rows, .cache = cache, .turned = 32});
      expect_parts(what + " normed", {.rows = rows, .cache = cache, .has_norms = true});
      expect_parts(what + " behind a layer norm",
                   {.rows = rows, .cache = cache, .norm = NormKind::LayerNorm});
    }
  }
}

TEST_P(ProjectHeads, ARowHasTheSameBitsAlone) {
  for (const RopeStyle style : {RopeStyle::Half, RopeStyle::Adjacent}) {
    const Case alone{.rows = 1, .cache = DType::F32, .style = style};
    const auto width = static_cast<std::size_t>((alone.heads + 2 * kKvHeads) * alone.head_dim);
    const std::vector<float> one = run(alone, Body::Own);
    for (const std::int64_t rows : {2, 8, 13, 16, 17, 40}) {
      Case among = alone;
      among.rows = rows;
      const std::vector<float> all = run(among, Body::Own);
      expect_same_bits(std::span(all).first(width), std::span(one).first(width),
                       fmt::format("among {}", rows));
    }
  }
}

}  // namespace
}  // namespace llorch::compute::test
