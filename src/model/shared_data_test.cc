// Models that are not part of the project, with logits and ids from transformers. Skips loudly
// where they are absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
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

TEST(SharedData, TinyRandomGpt2AgreesWithTransformers) {
  const auto folder = test::data_path("weights/tiny-random/gpt2");
  if (!folder) GTEST_SKIP() << "weights/tiny-random/gpt2 is absent";
  const json::Value golden =
      json::parse(base::read_text_file(*folder / "golden.json", 1 << 24).take()).take();
  const std::vector<std::int32_t> prompt = ids_of(golden, "input_ids");
  const std::vector<std::int32_t> expected = ids_of(golden, "greedy_ids");
  const std::vector<float> logits = read_npy(*folder / "golden_logits.npy");
  const auto backend = test_backend("cpu");
  const auto model = load_model(*folder, *backend);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const Trace trace = record_trace(model.value(), *backend, prompt,
                                   static_cast<std::int32_t>(expected.size() - prompt.size()))
                          .take();
  const std::vector<float>& ours = trace.tensors.at("logits").values;
  ASSERT_EQ(ours.size(), logits.size());
  double worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i)
    worst = std::max(worst, std::abs(double{ours[i]} - logits[i]));
  EXPECT_LT(worst, 1e-3);
  EXPECT_EQ(trace.greedy_ids, expected);
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
