#include "compute/input_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "compute/cpu/cpu_backend.h"
#include "compute/create.h"
#include "compute/dequantize.h"
#include "compute/test_tensors.h"
#include "tensor/half.h"

namespace llorch::compute::test {
namespace {

using testing::Each;
using testing::HasSubstr;

struct Quantised {
  std::vector<int> quants;
  std::vector<float> scales;
};

Quantised quantise(std::span<const float> values) {
  std::vector<std::int8_t> quants(values.size(), std::int8_t{99});
  Quantised result;
  result.scales.resize((values.size() + kInputBlock - 1) / kInputBlock);
  quantize_input(values, quants.data(), result.scales.data());
  result.quants.assign(quants.begin(), quants.end());
  return result;
}

TEST(QuantizeInput, LargestBecomes127AndTiesGoToEven) {
  std::vector<float> values(32, 0.0F);
  values[0] = -127.0F;
  values[1] = 0.5F;
  values[2] = 1.5F;
  values[3] = -2.5F;
  values[4] = 126.6F;
  const Quantised found = quantise(values);
  EXPECT_EQ(found.scales, std::vector<float>{1.0F});
  EXPECT_EQ(std::vector<int>(found.quants.begin(), found.quants.begin() + 6),
            (std::vector<int>{-127, 0, 2, -2, 127, 0}));
}

// Each block has its own scale, the short one at the end too, and no value is off by more than half
// a step.
TEST(QuantizeInput, BlocksAreIndependentAndHalfAStepExact) {
  Random random(1);
  for (const std::int64_t count : {1, 31, 32, 33, 96, 300}) {
    std::vector<float> values = random.numbers(count, 3.0F);
    values[0] *= 1000;
    const Quantised found = quantise(values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float scale = found.scales[i / kInputBlock];
      EXPECT_NEAR(scale * static_cast<float>(found.quants[i]), values[i], 0.5001F * scale);
      EXPECT_LE(std::abs(found.quants[i]), 127);
    }
    if (count > 32) {
      EXPECT_LT(found.scales[1], found.scales[0] / 100);
    }
  }
}

TEST(QuantizeInput, ZeroTinyAndImpossibleBlocks) {
  const std::vector<float> tiny(32, 3e-37F);
  EXPECT_EQ(quantise(tiny).scales[0], 0.0F);
  EXPECT_THAT(quantise(tiny).quants, Each(0));
  const std::vector<float> small(32, 5e-37F);
  EXPECT_THAT(quantise(small).quants, Each(127));
  const std::vector<float> huge(32, std::numeric_limits<float>::max());
  EXPECT_THAT(quantise(huge).quants, Each(127));
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> values(64, 1.0F);
    values[7] = bad;
    const Quantised found = quantise(values);
    EXPECT_TRUE(std::isnan(found.scales[0]));
    EXPECT_FALSE(std::isnan(found.scales[1]));
  }
}

TEST(RoundInput, RoundsToWhatTheFormHolds) {
  const std::vector<float> values = {1.0F, 1.0F / 3, -65519.0F, 1e6F};
  std::vector<float> out(4);
  round_input(InputForm::F32, values, out.data());
  EXPECT_EQ(out, values);
  round_input(InputForm::F16, values, out.data());
  EXPECT_EQ(out, (std::vector<float>{1.0F, 0.333251953125F, -65504.0F, 65504.0F}))
      << "beyond its range the largest half";
  const std::vector<float> infinite = {INFINITY};
  round_input(InputForm::F16, infinite, out.data());
  EXPECT_EQ(out[0], INFINITY);
  round_input(InputForm::F32, values, out.data());
  round_input(InputForm::BF16, values, out.data());
  EXPECT_EQ(out, (std::vector<float>{1.0F, 0.333984375F, -65536.0F, 999424.0F}));
}

// Each weight is a half, and as near to what the type stands for as rounding scale, minimum and sum
// leaves it.
TEST(RoundWeights, GivesHalvesNearTheNumbersOfTheType) {
  using enum DType;
  for (const DType dtype : {F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K}) {
    SCOPED_TRACE(tensor::name(dtype));
    EXPECT_TRUE(can_round_weights(dtype));
    constexpr std::int64_t kValues = 1024;
    test::Random random(static_cast<std::uint64_t>(dtype) + 5);
    const std::vector<std::byte> blocks = test::random_weight(dtype, kValues, random);
    std::vector<float> exact(kValues);
    ASSERT_TRUE(dequantize(dtype, blocks, exact).ok());
    std::vector<float> rounded(kValues);
    round_weights(dtype, blocks, rounded);
    float largest = 0;
    for (const float value : exact) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      EXPECT_EQ(tensor::half_to_float(tensor::float_to_half(rounded[i])), rounded[i]);
      EXPECT_NEAR(rounded[i], exact[i], 1e-3F * largest) << "value " << i;
    }
  }
}

// By hand: 0.1 as a half times 3 and times 127, each rounded once.
TEST(RoundWeights, RoundsOnce) {
  std::vector<std::byte> block(34);
  const std::uint16_t scale = tensor::float_to_half(0.1F);
  std::memcpy(block.data(), &scale, 2);
  block[2] = std::byte{3};
  block[3] = std::byte{127};
  std::vector<float> out(32);
  round_weights(DType::Q8_0, block, out);
  EXPECT_EQ(out[0], 0.2998046875F);
  EXPECT_EQ(out[1], 12.6953125F);
  EXPECT_EQ(out[2], 0.0F);
}

TEST(InputForm, HasNamesAndIsForTheTypesItSuits) {
  for (const InputForm form : {InputForm::F32, InputForm::F16, InputForm::BF16, InputForm::Int8})
    EXPECT_EQ(find_input_form(name(form)), form);
  EXPECT_EQ(find_input_form("int4"), std::nullopt);
  for (const WeightForm form : {WeightForm::Exact, WeightForm::Half})
    EXPECT_EQ(find_weight_form(name(form)), form);
  EXPECT_EQ(find_weight_form("f16"), std::nullopt);
  EXPECT_EQ(form_for(InputForm::Int8, DType::Q4_K), InputForm::Int8);
  EXPECT_EQ(form_for(InputForm::Int8, DType::F16), InputForm::F32);
  EXPECT_EQ(form_for(InputForm::BF16, DType::F16), InputForm::BF16);
}

TEST(InputForm, IsDeclaredByEachBackend) {
  const auto cpu = make_backend("cpu", {.threads = 1}).take();
  using enum DType;
  for (const DType dtype :
       {Q8_0,  Q4_0,  Q4_1,    Q5_0,   Q5_1,  Q2_K,    Q3_K,  Q4_K,  Q5_K,  Q6_K,  IQ4_NL, IQ4_XS,
        IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, TQ1_0, TQ2_0, MXFP4, NVFP4})
    EXPECT_EQ(cpu->input_form(dtype), InputForm::Int8) << tensor::name(dtype);
  for (const DType dtype : {F32, F16, F8E4M3})
    EXPECT_EQ(cpu->input_form(dtype), InputForm::F32) << tensor::name(dtype);
  EXPECT_EQ(cpu->input_form(BF16), cpu_forms("", {}).has_bf16 ? InputForm::BF16 : InputForm::F32);
  const auto exact = make_backend("cpu", {.threads = 1, .input = InputForm::F32}).take();
  EXPECT_EQ(exact->input_form(Q4_K), InputForm::F32);
  EXPECT_EQ(exact->input_form(BF16), InputForm::F32);
  const auto forced = make_backend("cpu", {.threads = 1, .input = InputForm::Int8}).take();
  EXPECT_THAT(forced->name(), HasSubstr("input int8"));
  EXPECT_EQ(forced->input_form(DType::Q8_0), InputForm::Int8);
  EXPECT_EQ(forced->input_form(DType::F32), InputForm::F32);
  EXPECT_FALSE(make_backend("cuda:0", {.input = InputForm::Int8}).ok());
}

// The forms differ by far more than a kernel may differ from the one it declares, so a kernel that
// computes another form is found out.
TEST(InputForm, IsToldApartByTheConformanceTests) {
  Random random(2);
  constexpr std::int64_t kDim = 256;
  const std::vector<std::byte> bytes = random_weight(DType::Q8_0, kDim, random);
  const std::vector<float> x = random.numbers(kDim);
  const auto multiply = [&](InputForm form) {
    const auto backend = make_backend("reference", {.input = form}).take();
    Device device(*backend);
    const TensorView out = device.output(1, 1, Layout::Tight);
    const LinearTarget target = {
        .weight = device.weight(DType::Q8_0, 1, kDim, bytes), .bias = {}, .out = out};
    backend->linear({.x = device.floats(x, {1, kDim}), .targets = {&target, 1}});
    return device.read(out)[0];
  };
  const float exact = multiply(InputForm::F32);
  for (const InputForm form : {InputForm::F16, InputForm::BF16, InputForm::Int8})
    EXPECT_GT(std::abs(multiply(form) - exact), 1e-5 * std::abs(exact)) << name(form);
}

}  // namespace
}  // namespace llorch::compute::test
