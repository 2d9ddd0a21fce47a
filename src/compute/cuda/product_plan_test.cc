// Which products share a launch and what it does besides: decided from shapes, without a device.
#include "compute/cuda/product_plan.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace llorch::compute::cuda {
namespace {

using tensor::DType;

constexpr std::int64_t kCols = 256;
constexpr TensorCores kHopper = {.mma = true, .wgmma = true, .shared_bytes = 200 << 10};
constexpr TensorCores kAmpere = {.mma = true, .wgmma = false, .shared_bytes = 100 << 10};
constexpr TensorCores kNone = {};

struct Matrix {
  DType dtype = DType::Q4_K;
  std::int64_t outputs = 256;
};

// Products that share an input of `rows` rows; nothing is read.
class Products {
 public:
  Products(std::int64_t rows, const std::vector<Matrix>& matrices)
      : memory_(static_cast<std::size_t>(rows * 4096)), weights_(matrices.size()) {
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      weights_[i].dtype = matrices[i].dtype;
      weights_[i].rows = matrices[i].outputs;
      weights_[i].cols = kCols;
      weights_[i].use = WeightUse::Multiply;
      targets_.push_back(
          {.weight = &weights_[i], .bias = {}, .out = matrix(rows, matrices[i].outputs)});
    }
    args = {.x = matrix(rows, kCols),
            .norm = {.kind = NormKind::RmsNorm, .weight = matrix(1, kCols), .bias = {}},
            .normed = matrix(rows, kCols),
            .targets = targets_};
  }
  TensorView matrix(std::int64_t rows, std::int64_t cols) {
    return TensorView(memory_.data(), DType::F32, {rows, cols});
  }
  std::span<LinearTarget> targets() { return targets_; }

  NormLinearArgs args;

 private:
  std::vector<float> memory_;
  std::vector<Weight> weights_;
  std::vector<LinearTarget> targets_;
};

std::size_t together(std::int64_t rows, const std::vector<Matrix>& matrices,
                     const TensorCores& cores = kHopper) {
  return count_together(Products(rows, matrices).targets(), rows, cores);
}

TEST(ProductPlan, PutsNeighboursOfOneFormIntoOneLaunch) {
  EXPECT_EQ(together(1, {{DType::Q4_K}, {DType::Q4_0}, {DType::Q4_1}}), 3U) << "one form";
  EXPECT_EQ(together(1, {{DType::Q4_K}, {DType::Q8_0}, {DType::Q4_K}}), 1U);
  EXPECT_EQ(together(1, {{DType::Q8_0}, {DType::Q8_0}, {DType::Q8_0}, {DType::Q8_0}}), 3U)
      << "no more than three";
}

TEST(ProductPlan, MixesTwoFormsInNarrowProductsOfWholeBlocks) {
  const std::vector<Matrix> mixture = {{DType::Q4_K}, {DType::Q4_K}, {DType::Q6_K}};
  EXPECT_EQ(together(16, mixture), 3U);
  EXPECT_EQ(together(17, mixture), 2U) << "wide";
  EXPECT_EQ(together(17, mixture, kAmpere), 3U) << "which has no wide products";
  EXPECT_EQ(together(1, {{DType::Q6_K}, {DType::Q4_K}}), 1U) << "the other way round";
  EXPECT_EQ(together(1, {{DType::Q4_K}, {DType::Q6_K}, {DType::Q4_K}}), 2U);
  EXPECT_EQ(together(1, {{DType::Q4_K, 64}, {DType::Q6_K}}), 1U) << "no whole block";
}

TEST(ProductPlan, CountsTilesAndGroupsOfAllParts) {
  Products products(1, {{DType::Q4_K, 256}, {DType::Q4_K, 80}, {DType::Q4_K, 16}});
  const ProductArgs plan = plan_outputs(products.targets(), kHopper);
  EXPECT_EQ(plan.num_parts, 3);
  EXPECT_EQ(plan.parts[1].first_tile, 16);
  EXPECT_EQ(plan.parts[2].first_tile, 21);
  EXPECT_EQ(plan.output_tiles, 22);
  EXPECT_EQ(plan.parts[1].first_group, 4);
  EXPECT_EQ(plan.parts[2].first_group, 6) << "80 outputs begin a second group";
  EXPECT_EQ(plan.groups, 7);
}

TEST(ProductPlan, TakesTheNormOfFewRowsInside) {
  EXPECT_TRUE(norms_inside(Products(4, {{}}).args, kHopper));
  EXPECT_FALSE(norms_inside(Products(5, {{}}).args, kHopper));
  EXPECT_FALSE(norms_inside(Products(4, {{}}).args, kNone)) << "nothing is packed";
  EXPECT_FALSE(norms_inside(Products(4, {{}, {DType::F32}}).args, kHopper)) << "one is not packed";
  EXPECT_FALSE(norms_inside(Products(1, {{DType::Q8_0, 801 * 16}}).args, kHopper));
  Products centred(4, {{}});
  centred.args.norm.kind = NormKind::LayerNorm;
  EXPECT_FALSE(norms_inside(centred.args, kHopper));
}

TEST(ProductPlan, GatesWhereBothHalvesLieAlike) {
  const auto is_inside = [](std::int64_t rows, const std::vector<Matrix>& matrices,
                            bool gated = true) {
    Products products(rows, matrices);
    return gates_inside(
        {.product = products.args, .kind = {}, .gated = gated, .out = products.matrix(rows, 512)},
        kHopper);
  };
  EXPECT_TRUE(is_inside(16, {{}, {}}));
  EXPECT_FALSE(is_inside(17, {{}, {}}));
  EXPECT_FALSE(is_inside(16, {{}, {}}, false));
  EXPECT_FALSE(is_inside(16, {{}}));
  EXPECT_FALSE(is_inside(16, {{}, {DType::Q6_K}}));
  EXPECT_FALSE(is_inside(16, {{}, {DType::Q4_K, 512}}));
  EXPECT_FALSE(is_inside(16, {{DType::F32}, {DType::F32}}));
}

}  // namespace
}  // namespace llorch::compute::cuda
