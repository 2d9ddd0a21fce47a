#include "catalog/known_models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "catalog/describe.h"
#include "catalog/supported.h"
#include "fetch/model_ref.h"
#include "formats/open.h"
#include "support/test_paths.h"

namespace llorch::catalog {
namespace {

using contract::ModelEntry;

TEST(KnownModels, HaveDistinctIdsThatAreIds) {
  std::set<std::string> ids;
  for (const ModelEntry& entry : known_models()) {
    EXPECT_TRUE(contract::is_model_id(entry.id)) << entry.id;
    EXPECT_TRUE(ids.insert(entry.id).second) << entry.id << " twice";
  }
  for (const char* id : {"builtin", "tinyllama", "qwen-0.5b", "phi3", "mistral", "gpt2",
                         "gpt2-medium", "smollm2", "llama3.2-1b"})
    EXPECT_TRUE(ids.contains(id)) << id;
}

// The models of the mission, as their publishers have them beside the file that others made.
TEST(KnownModels, AVariantIsTheSameModelInAnotherFormat) {
  const std::vector<ModelEntry> known = known_models();
  const auto find = [&](const std::string& id) {
    return std::find_if(known.begin(), known.end(),
                        [&](const ModelEntry& entry) { return entry.id == id; });
  };
  for (const char* name : {"tinyllama", "qwen-0.5b", "phi3", "mistral"}) {
    SCOPED_TRACE(name);
    const auto plain = find(name);
    const auto variant = find(std::string(name) + ":safetensors");
    ASSERT_NE(plain, known.end());
    ASSERT_NE(variant, known.end());
    EXPECT_EQ(plain->name, variant->name);
    EXPECT_EQ(plain->format, "gguf");
    EXPECT_EQ(variant->format, "safetensors");
    EXPECT_EQ(plain->license, variant->license);
    EXPECT_GT(variant->size_bytes, plain->size_bytes);
  }
}

TEST(KnownModels, SayWhereTheyAreUnderWhichLicenceAndHowLarge) {
  for (const ModelEntry& entry : known_models()) {
    SCOPED_TRACE(entry.id);
    EXPECT_FALSE(entry.name.empty());
    EXPECT_FALSE(entry.license.empty());
    EXPECT_GT(entry.size_bytes, 1'000'000);
    EXPECT_FALSE(entry.backends.empty());
    if (entry.id == "builtin") continue;
    const Result<fetch::ModelRef> ref = fetch::parse_model_ref(entry.repo);
    ASSERT_TRUE(ref.ok()) << ref.error().message;
    EXPECT_EQ(ref->provider, fetch::Provider::HuggingFace);
    EXPECT_EQ(ref->text(), entry.repo);
    EXPECT_EQ(entry.format == "gguf", ref->file.ends_with(".gguf"));
    EXPECT_FALSE(entry.downloaded);
    EXPECT_TRUE(entry.path.empty());
    const auto architectures = supported_architectures();
    EXPECT_NE(std::find(architectures.begin(), architectures.end(), entry.architecture),
              architectures.end())
        << entry.architecture;
    const auto bad_types = unsupported_types();
    EXPECT_EQ(std::find(bad_types.begin(), bad_types.end(), entry.quantization), bad_types.end());
  }
}

TEST(KnownModels, TheBuiltInOneIsWhatItsBytesSay) {
  const std::filesystem::path file = test::source_path("models/builtin/stories.gguf");
  const Result<formats::WeightFile> weights = formats::open_weights(file);
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  ModelEntry read;
  read.id = "builtin";
  read.path = "builtin";
  read.size_bytes = static_cast<std::int64_t>(std::filesystem::file_size(file));
  read.downloaded = true;
  read.license = "Apache-2.0";
  describe_weights(*weights, read);
  EXPECT_EQ(builtin_entry(), read);
  EXPECT_EQ(known_models().front(), read);
}

}  // namespace
}  // namespace llorch::catalog
