// Every family in K types: rows of 256, so that nothing falls back to smaller blocks, against
// transformers in float32 on the weights that gguf-py decoded (tests/golden/quantised).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "formats/open.h"
#include "model/golden_fixture.h"

namespace llorch::model {
namespace {

using tensor::DType;

// Logits are about 3 wide. The cpu backend multiplies decoded weights with float activations, so
// that only the order of sums differs.
constexpr double kTolerance = 2e-4;

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
  for (const char* name : {"cpu", "reference"}) {
    const auto backend = test_backend(name);
    const auto model = load_model(gguf(), *backend);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const Trace ours = record_trace(model.value(), *backend, ids,
                                    static_cast<std::int32_t>(greedy.size() - ids.size()))
                           .take();
    const std::vector<float>& logits = ours.tensors.at("logits").values;
    ASSERT_EQ(logits.size(), expected.size());
    double worst = 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
      worst = std::max(worst, std::abs(double{logits[i]} - expected[i]));
    fmt::print("{} on {}: largest difference {:.3g}\n", GetParam(), name, worst);
    EXPECT_LT(worst, kTolerance) << name;
    EXPECT_EQ(ours.greedy_ids, greedy) << name;
  }
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
