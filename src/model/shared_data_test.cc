// Models that are not part of the project, with logits and ids from transformers. Skips loudly
// where they are absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "compute/create.h"
#include "formats/open.h"
#include "model/golden_fixture.h"

namespace llorch::model {
namespace {

std::vector<std::int32_t> ids_of(const json::Value& document, const char* key) {
  std::vector<std::int32_t> ids;
  for (const json::Value& id : document.as_object().at(key).as_array())
    ids.push_back(static_cast<std::int32_t>(id.as_int64()));
  return ids;
}

// The float32 values of a NumPy file of version 1: magic, version, u16 header length, header, data.
std::vector<float> read_npy(const std::filesystem::path& path) {
  const auto file = base::MappedFile::open(path).take();
  std::uint16_t header = 0;
  std::memcpy(&header, file->bytes().data() + 8, 2);
  const std::span<const std::byte> data = file->bytes().subspan(10U + header);
  std::vector<float> values(data.size() / sizeof(float));
  std::memcpy(values.data(), data.data(), data.size());
  return values;
}

// What transformers computed for a prompt: the logits of its rows, and its greedy continuation.
struct Expected {
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> greedy;  // the prompt included
  std::vector<float> logits;

  explicit Expected(const std::filesystem::path& folder)
      : logits(read_npy(folder / "golden_logits.npy")) {
    const json::Value golden =
        json::parse(base::read_text_file(folder / "golden.json", 1 << 24).take()).take();
    prompt = ids_of(golden, "input_ids");
    greedy = ids_of(golden, "greedy_ids");
  }
};

double worst_difference(std::span<const float> ours, std::span<const float> expected) {
  CHECK(ours.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i)
    worst = std::max(worst, std::abs(double{ours[i]} - expected[i]));
  return worst;
}

Trace record(const std::filesystem::path& path, compute::Backend& backend,
             const Expected& expected) {
  const auto model = load_model(path, backend);
  CHECK(model.ok(), model.error().message);
  return record_trace(model.value(), backend, expected.prompt,
                      static_cast<std::int32_t>(expected.greedy.size() - expected.prompt.size()))
      .take();
}

class TinyRandom : public testing::TestWithParam<std::string_view> {};

TEST_P(TinyRandom, AgreesWithTransformers) {
  const auto folder = test::data_path(fmt::format("weights/tiny-random/{}", GetParam()));
  if (!folder) GTEST_SKIP() << "weights/tiny-random/" << GetParam() << " is absent";
  const Expected expected(*folder);
  for (const char* name : {"cpu", "reference"}) {
    const auto backend = test_backend(name);
    const Trace trace = record(*folder, *backend, expected);
    const double worst = worst_difference(trace.tensors.at("logits").values, expected.logits);
    fmt::print("{} on {}: largest difference {:.3g}\n", GetParam(), name, worst);
    EXPECT_LT(worst, 1e-3);
    EXPECT_EQ(trace.greedy_ids, expected.greedy);
  }
}

INSTANTIATE_TEST_SUITE_P(SharedData, TinyRandom,
                         testing::Values("gpt2", "llama3_rope_scaling", "llama_gqa",
                                         "llama_headdim32", "llama_mha_bias", "llama_mqa",
                                         "llama_rope_linear", "llama_rope_yarn", "llama_tied",
                                         "mistral_swa", "phi3", "qwen2", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

TEST(SharedData, Stories260KFromHuggingFaceAndEveryGgufType) {
  const auto folder = test::data_path("weights/stories260K/hf");
  if (!folder) GTEST_SKIP() << "weights/stories260K is absent";
  const Expected expected(*folder);
  // What the files' types lose, and what the input's 8-bit form loses besides.
  const auto exact =
      compute::make_backend("cpu", {.threads = 2, .input = compute::InputForm::F32}).take();
  const auto declared = test_backend("cpu");
  const auto check = [&](const std::filesystem::path& path, double tolerance, bool same_ids,
                         compute::Backend& backend) {
    const Trace trace = record(path, backend, expected);
    const double worst = worst_difference(trace.tensors.at("logits").values, expected.logits);
    fmt::print("{}: largest difference {:.3g}\n", path.filename().string(), worst);
    EXPECT_LT(worst, tolerance) << path;
    if (same_ids) {
      EXPECT_EQ(trace.greedy_ids, expected.greedy) << path;
    }
  };
  check(*folder, 1e-3, true, *declared);
  // Llama's GGUF files keep Q and K in another order: the same numbers only if it is undone
  // rightly.
  const std::filesystem::path gguf = folder->parent_path() / "gguf";
  check(gguf / "stories260K-F32.gguf", 1e-3, true, *declared);
  for (const auto& [type, tolerance] :
       {std::pair{"F16", 0.02}, std::pair{"BF16", 0.15}, std::pair{"Q8_0", 0.3},
        std::pair{"Q6_K", 0.3}, std::pair{"Q5_0", 2.0}, std::pair{"Q5_1", 2.0},
        std::pair{"Q5_K_M", 2.0}, std::pair{"Q4_0", 5.0}, std::pair{"Q4_1", 4.0},
        std::pair{"Q4_K_M", 3.0}, std::pair{"IQ4_NL", 4.0}, std::pair{"Q3_K_M", 4.0},
        std::pair{"Q2_K", 5.0}}) {
    const auto path = gguf / fmt::format("stories260K-{}.gguf", type);
    check(path, tolerance, false, *exact);
    check(path, tolerance + 0.3, false, *declared);
  }
}

TEST(SharedData, MiniMindInHalfPrecisionAgreesWithTransformers) {
  const auto folder = test::data_path("weights/minimind2-small/hf");
  if (!folder) GTEST_SKIP() << "weights/minimind2-small is absent";
  const Expected expected(*folder);
  const auto backend = test_backend("cpu");
  const Trace trace = record(*folder, *backend, expected);
  const double worst = worst_difference(trace.tensors.at("logits").values, expected.logits);
  fmt::print("minimind2-small: largest difference {:.3g}\n", worst);
  EXPECT_LT(worst, 1e-3);
  EXPECT_EQ(trace.greedy_ids, expected.greedy);
}

// Files whose container is sound and whose model is not: none may be planned, each says why.
TEST(SharedData, HostileModelsAreRefusedBeforeTheyLoad) {
  const auto manifest_path = test::data_path("fuzz/manifest.json");
  if (!manifest_path) GTEST_SKIP() << "fuzz/manifest.json is absent";
  const json::Value manifest =
      json::parse(base::read_text_file(*manifest_path, 1 << 24).take()).take();
  int refused = 0;
  for (const json::Value& entry : manifest.as_array()) {
    if (entry.as_object().at("expect") != "reject-model") continue;
    const std::filesystem::path path =
        manifest_path->parent_path() / json::view(entry.as_object().at("file").as_string());
    const Result<formats::WeightFile> file = formats::open_weights(path);
    const Result<ModelPlan> plan =
        file.ok() ? plan_model(file.value()) : Result<ModelPlan>(file.error());
    ASSERT_FALSE(plan.ok()) << path;
    EXPECT_FALSE(plan.error().message.empty());
    ++refused;
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace llorch::model
