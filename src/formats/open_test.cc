#include "formats/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "formats/test_safetensors.h"
#include "support/test_paths.h"

namespace llorch::formats {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf, ::testing::HasSubstr, ::testing::Not;

std::string message_of(const fs::path& path) {
  const Result<WeightFile> weights = open_weights(path);
  return weights.ok() ? "accepted" : weights.error().message;
}

TEST(OpenWeights, OpensEveryLayoutOfTheSameModelAlike) {
  const fs::path root = test::source_path("tests/golden/gpt2_tiny");
  const Result<WeightFile> expected = open_weights(root / "model.safetensors");
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  for (const char* place : {"", "pytorch", "sharded_pytorch", "sharded_safetensors",
                            "sharded_pytorch/pytorch_model-00002-of-00002.bin",
                            "sharded_safetensors/model-00001-of-00003.safetensors"}) {
    SCOPED_TRACE(place);
    const Result<WeightFile> weights = open_weights(root / place);
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->metadata().text("config.model_type").value(), "gpt2");
    // torch.save alone also writes lm_head.weight, tied to the embedding.
    const bool tied = weights->find("lm_head.weight") != nullptr;
    EXPECT_EQ(weights->tensors().size(), expected->tensors().size() + (tied ? 1 : 0));
    for (const WeightTensor& tensor : expected->tensors()) {
      const WeightTensor* found = weights->find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(gather_contiguous(*found), gather_contiguous(tensor)) << tensor.name;
    }
  }
}

TEST(OpenWeights, OpensRealFolders) {
  const auto tiny = test::data_path("weights/tiny-random");
  if (!tiny) GTEST_SKIP() << "no real data: weights/tiny-random";
  int opened = 0;
  for (const auto& entry : fs::directory_iterator(*tiny)) {
    const Result<WeightFile> weights = open_weights(entry.path());
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->format(), FileFormat::SafeTensors);
    EXPECT_GT(weights->tensors().size(), 10U);
    EXPECT_TRUE(weights->metadata().text("config.model_type").ok());
    EXPECT_TRUE(weights->metadata().integer("config.vocab_size").ok());
    EXPECT_TRUE(weights->metadata().contains("generation_config.transformers_version"));
    ++opened;
  }
  EXPECT_EQ(opened, 13);
}

TEST(OpenWeights, OpensRealModelsInBothForms) {
  const auto stories = test::data_path("weights/stories260K/hf");
  const auto minimind = test::data_path("weights/minimind2-small");
  if (!stories || !minimind)
    GTEST_SKIP() << "no real data: weights/stories260K, weights/minimind2-small";
  const Result<WeightFile> small = open_weights(*stories);
  ASSERT_TRUE(small.ok()) << small.error().message;
  EXPECT_EQ(small->metadata().integer("config.vocab_size").value(), 512);
  const Result<WeightFile> chat = open_weights(*minimind / "hf");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_EQ(chat->metadata().integer("config.vocab_size").value(), 6400);
  const Result<WeightFile> gguf = open_weights(*minimind);
  ASSERT_TRUE(gguf.ok()) << "the only .gguf of the folder: " << gguf.error().message;
  EXPECT_EQ(gguf->format(), FileFormat::Gguf);
}

TEST(OpenWeights, TellsWhatAnUnknownFileIs) {
  const test::TempDir dir;
  const auto write = [&dir](const char* name, std::string_view content) {
    EXPECT_TRUE(base::write_file_atomically(dir / name, content).ok());
    return dir / name;
  };
  EXPECT_THAT(message_of(dir / "absent"), HasSubstr("absent"));
  const std::string message = message_of(write("text.gguf", "hello"));
  EXPECT_THAT(message, HasSubstr("(5 bytes) is none of the formats"));
  EXPECT_THAT(message, Not(AnyOf(HasSubstr("68 65"), HasSubstr("hello")))) << "what is in a file "
                                                                              "stays there";
  EXPECT_THAT(message_of(write("empty.safetensors", "")), HasSubstr("(0 bytes) is none"));
  EXPECT_THAT(message_of(write("lfs.safetensors",
                               "version https://git-lfs.github.com/spec/v1\noid sha256:0\n")),
              HasSubstr("git lfs pull"));
  EXPECT_THAT(message_of(write("old.bin", "\x80\x02N.")), HasSubstr("old format"));
  EXPECT_THAT(message_of(write("zip.bin", "PK\x03\x04")), HasSubstr("no end record"));
  EXPECT_THAT(message_of(write("short.bin", "GGUF")), HasSubstr("short.bin"));
}

TEST(OpenWeights, ListsWhatItLookedForInAFolder) {
  const test::TempDir dir;
  EXPECT_THAT(message_of(dir.path()),
              AllOf(HasSubstr("model.safetensors"), HasSubstr("pytorch_model.bin.index.json"),
                    HasSubstr(".gguf (found 0)")));
  for (const char* name : {"a.safetensors", "b.safetensors"}) {
    write_safetensors(dir / name, {});
  }
  EXPECT_THAT(message_of(dir.path()), HasSubstr(".safetensors (found 2)"));
  fs::remove(dir / "b.safetensors");
  EXPECT_EQ(message_of(dir.path()), "accepted") << "the only one";
}

TEST(OpenWeights, RefusesABrokenConfig) {
  const test::TempDir dir;
  write_safetensors(dir / "model.safetensors", {});
  ASSERT_TRUE(base::write_file_atomically(dir / "config.json", "{\"a\":1,\"a\":2}").ok());
  EXPECT_THAT(message_of(dir.path()), AllOf(HasSubstr("config.json"), HasSubstr("occurs twice")));
}

}  // namespace
}  // namespace llorch::formats
