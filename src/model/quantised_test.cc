// Every family in K types: rows of 256, so that nothing falls back to smaller blocks, against
// transformers in float32 on the weights that gguf-py decoded (tests/golden/quantised).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "compute/create.h"
#include "formats/open.h"
#include "model/golden_fixture.h"

namespace llorch::model {
namespace {

using tensor::DType;

// Logits are about 3 wide. With float input only the order of sums differs.
constexpr double kTolerance = 2e-4;
// What the input in whole numbers of eight bits, as the cpu backend takes it, may change, and how
// far that backend may be from the reference in the same form: the last bit of a norm decides to
// which number a value is rounded.
constexpr double kInt8Changes = 0.4;
constexpr double kInt8Tolerance = 0.1;

double worst_difference(std::span<const float> ours, std::span<const float> expected) {
  CHECK(ours.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i)
    worst = std::max(worst, std::abs(double{ours[i]} - double{expected[i]}));
  return worst;
}

class Quantised : public testing::TestWithParam<std::string_view> {
 protected:
  std::filesystem::path gguf() const {
    return test::source_path(fmt::format("tests/golden/quantised/{}.gguf", GetParam()));
  }
};

TEST_P(Quantised, LogitsAreThoseOfTheDecodedWeights) {
  const formats::WeightFile golden =
      formats::read_safetensors(test::source_path(fmt::format(
                                    "tests/golden/quantised/{}.golden.safetensors", GetParam())))
          .take();
  const auto ids = values_of<std::int32_t>(*golden.find("ids"));
  const auto greedy = values_of<std::int32_t>(*golden.find("greedy_ids"));
  const auto expected = values_of<float>(*golden.find("logits"));
  const auto trace_on = [&](const char* name, std::optional<compute::InputForm> input) {
    const auto backend = compute::make_backend(name, {.threads = 2, .input = input}).take();
    const auto model = load_model(gguf(), *backend);
    CHECK(model.ok(), model.error().message);
    return record_trace(model.value(), *backend, ids,
                        static_cast<std::int32_t>(greedy.size() - ids.size()))
        .take();
  };
  using compute::InputForm;
  for (const char* name : {"cpu", "reference"}) {
    const Trace exact = trace_on(name, InputForm::F32);
    const double worst = worst_difference(exact.tensors.at("logits").values, expected);
    fmt::print("{} on {}: largest difference {:.3g}\n", GetParam(), name, worst);
    EXPECT_LT(worst, kTolerance) << name;
    EXPECT_EQ(exact.greedy_ids, greedy) << name;
  }
  const Trace declared = trace_on("cpu", {});
  const Trace reference = trace_on("reference", InputForm::Int8);
  const std::vector<float>& logits = declared.tensors.at("logits").values;
  const double changed = worst_difference(logits, expected);
  const double worst = worst_difference(logits, reference.tensors.at("logits").values);
  fmt::print("{} with int8 input: {:.3g}, from the reference in that form {:.3g}\n", GetParam(),
             changed, worst);
  EXPECT_LT(changed, kInt8Changes);
  EXPECT_LT(worst, kInt8Tolerance);
}

// What the fixture is for: no matrix in a type of small blocks, and all six types at work.
TEST_P(Quantised, TheFileHasTheTypesItIsThereFor) {
  const formats::WeightFile file = formats::open_weights(gguf()).take();
  std::set<DType> types;
  for (const formats::WeightTensor& tensor : file.tensors()) {
    const bool positions = tensor.name == "position_embd.weight";
    if (tensor.shape.rank() == 2 && !positions) types.insert(tensor.dtype);
  }
  std::set<DType> wanted = {DType::Q2_K, DType::Q3_K, DType::Q4_K,
                            DType::Q5_K, DType::Q6_K, DType::IQ4_XS};
  if (GetParam() == "gpt2") wanted.erase(DType::Q5_K);  // has fewer matrices
  EXPECT_EQ(types, wanted);
}

INSTANTIATE_TEST_SUITE_P(Families, Quantised,
                         testing::Values("gpt2", "llama", "mistral", "qwen2", "qwen3", "phi3",
                                         "gemma2", "gemma3"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace llorch::model
