#include "catalog/known_models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "catalog/supported.h"
#include "fetch/model_ref.h"

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

// The numbers of models/builtin/README.md.
TEST(KnownModels, TheBuiltInOneIsDescribedFromItsBytes) {
  const ModelEntry builtin = known_models().front();
  EXPECT_EQ(builtin.id, "builtin");
  EXPECT_EQ(builtin.path, "builtin");
  EXPECT_TRUE(builtin.downloaded);
  EXPECT_EQ(builtin.format, "gguf");
  EXPECT_EQ(builtin.architecture, "llama");
  EXPECT_EQ(builtin.parameters, 14'162'304);
  EXPECT_EQ(builtin.context_length, 1024);
  EXPECT_EQ(builtin.vocab_size, 4096);
  EXPECT_EQ(builtin.quantization, "Q8_0");
  EXPECT_EQ(builtin.backends, (std::vector<std::string>{"cpu", "cuda"}));
  EXPECT_EQ(builtin.unsupported, "");
}

}  // namespace
}  // namespace llorch::catalog
