#include "catalog/describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "catalog/known_models.h"
#include "catalog/test_models.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using contract::ModelFile;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> paths_of(const ModelEntry& entry) {
  std::vector<std::string> paths;
  for (const ModelFile& file : entry.files) paths.push_back(file.path);
  return paths;
}

ModelEntry describe(const fs::path& path) {
  ModelEntry entry;
  const Status described = describe_files(path, entry);
  EXPECT_TRUE(described.ok()) << described.error().message;
  return entry;
}

TEST(DescribeFiles, AFolderIsReadFromItsFiles) {
  const test::TempDir dir;
  copy_model(dir / "tiny", {"generation_config.json"});
  std::ofstream(dir / "tiny/tokenizer.json") << "{}";
  std::ofstream(dir / "tiny/README.md") << "no part of the model";
  const ModelEntry entry = describe((dir / "tiny").string() + "/");
  EXPECT_EQ(entry.path, (dir / "tiny").string());
  EXPECT_EQ(entry.format, "safetensors");
  EXPECT_EQ(entry.architecture, "gpt2");
  EXPECT_EQ(entry.quantization, "F32");
  EXPECT_TRUE(entry.downloaded);
  EXPECT_THAT(entry.backends, ElementsAre("cpu", "cuda"));
  EXPECT_EQ(entry.unsupported, "");
  EXPECT_EQ(entry.name, "tiny");
  EXPECT_THAT(paths_of(entry), ElementsAre("model.safetensors", "config.json",
                                           "generation_config.json", "tokenizer.json"));
  std::int64_t bytes = 0;
  for (const ModelFile& file : entry.files) {
    EXPECT_EQ(file.size, static_cast<std::int64_t>(fs::file_size(dir / "tiny" / file.path)));
    EXPECT_GT(file.modified_ms, 1'000'000'000'000);
    EXPECT_EQ(file.sha256, "");
    bytes += file.size;
  }
  EXPECT_EQ(entry.size_bytes, bytes);
  EXPECT_EQ(entry.context_length, 64);
  EXPECT_EQ(entry.vocab_size, 211);
  // Embeddings, three layers of 12 d² + 13 d, the last norm; d = 48.
  EXPECT_EQ(entry.parameters, (211 + 64) * 48 + 3 * (12 * 48 * 48 + 13 * 48) + 2 * 48);
}

TEST(DescribeFiles, AFileAloneHasTheFolderItIsIn) {
  const test::TempDir dir;
  copy_model(dir / "tiny", {"generation_config.json"});
  const ModelEntry entry = describe(dir / "tiny/model.safetensors");
  EXPECT_EQ(entry.path, (dir / "tiny/model.safetensors").string());
  EXPECT_EQ(model_folder(entry), dir / "tiny");
  EXPECT_THAT(paths_of(entry),
              ElementsAre("model.safetensors", "config.json", "generation_config.json"));
  // A bare GPT-2 is known by its tensors.
  fs::remove(dir / "tiny/config.json");
  EXPECT_EQ(describe(dir / "tiny/model.safetensors").architecture, "gpt2");
}

TEST(DescribeFiles, AShardedModelListsEveryShardAndTheIndex) {
  const ModelEntry entry = describe(test::source_path("tests/golden/gpt2_tiny/sharded_pytorch"));
  EXPECT_EQ(entry.format, "pytorch");
  EXPECT_THAT(paths_of(entry),
              ElementsAre("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin",
                          "pytorch_model.bin.index.json", "config.json"));
  // Any shard stands for the whole.
  const ModelEntry shard = describe(test::source_path(
      "tests/golden/gpt2_tiny/sharded_safetensors/model-00002-of-00003.safetensors"));
  EXPECT_EQ(shard.format, "safetensors");
  EXPECT_EQ(shard.files.size(), 5U);
  EXPECT_EQ(shard.parameters, entry.parameters);
}

TEST(DescribeFiles, KeepsWhatFilesDoNotSay) {
  const test::TempDir dir;
  copy_model(dir / "tiny", {"generation_config.json"});
  ModelEntry entry;
  entry.id = "mine";
  entry.name = "Mine";
  entry.repo = "hf:a/b";
  entry.license = "MIT";
  entry.revision = "abc";
  entry.architecture = "a lie";
  ASSERT_TRUE(describe_files(dir / "tiny", entry).ok());
  EXPECT_EQ(entry.id, "mine");
  EXPECT_EQ(entry.name, "Mine");
  EXPECT_EQ(entry.repo, "hf:a/b");
  EXPECT_EQ(entry.license, "MIT");
  EXPECT_EQ(entry.revision, "abc");
  EXPECT_EQ(entry.architecture, "gpt2");
}

TEST(DescribeFiles, HashesOfUnchangedFilesAreKept) {
  const test::TempDir dir;
  copy_model(dir / "tiny", {"generation_config.json"});
  ModelEntry entry = describe(dir / "tiny");
  for (ModelFile& file : entry.files) file.sha256 = std::string(64, 'a');
  std::ofstream(dir / "tiny/generation_config.json") << "{ \"changed\": true }";
  ASSERT_TRUE(describe_files(dir / "tiny", entry).ok());
  EXPECT_EQ(entry.files[0].sha256, std::string(64, 'a'));
  EXPECT_EQ(entry.files[1].sha256, std::string(64, 'a'));
  EXPECT_EQ(entry.files[2].sha256, "") << "this one was rewritten";
}

TEST(DescribeFiles, FailsWithTheReasonAndChangesNothing) {
  const test::TempDir dir;
  fs::create_directory(dir / "empty");
  std::ofstream(dir / "text.gguf") << "version https://git-lfs.github.com/spec/v1\n";
  struct Case {
    fs::path path;
    std::string_view expected;
  };
  for (const Case& c :
       {Case{dir / "none", "none"}, Case{dir / "empty", "holds no weights"},
        Case{dir / "text.gguf", "Git LFS pointer"}, Case{dir / "\xff.gguf", "UTF-8"}}) {
    ModelEntry entry;
    entry.id = "x";
    entry.path = "/before";
    const ModelEntry before = entry;
    const Status described = describe_files(c.path, entry);
    ASSERT_FALSE(described.ok()) << c.path;
    EXPECT_THAT(described.error().message, HasSubstr(std::string(c.expected)));
    EXPECT_EQ(entry, before);
  }
}

TEST(CheckFiles, SeesWhatBecameOfTheFiles) {
  const test::TempDir dir;
  copy_model(dir / "tiny", {"generation_config.json"});
  ModelEntry entry = describe(dir / "tiny");
  EXPECT_EQ(check_files(entry), FilesState::Ready);

  // The same size at another time: somebody wrote it again.
  const fs::path config = dir / "tiny/config.json";
  const auto time = fs::last_write_time(config);
  fs::last_write_time(config, time + std::chrono::seconds(1));
  EXPECT_EQ(check_files(entry), FilesState::Changed);
  fs::last_write_time(config, time);
  EXPECT_EQ(check_files(entry), FilesState::Changed) << "the time of its inode cannot be set back";
  entry = describe(dir / "tiny");
  EXPECT_EQ(check_files(entry), FilesState::Ready);
  entry.files[0].damaged = true;
  EXPECT_EQ(check_files(entry), FilesState::Damaged);
  EXPECT_EQ(state_of(entry), "damaged");
  entry.files[0].damaged = false;

  std::ofstream(config, std::ios::app) << "\n";
  fs::last_write_time(config, time);
  EXPECT_EQ(check_files(entry), FilesState::Changed) << "another size";
  fs::remove(config);
  EXPECT_EQ(check_files(entry), FilesState::Missing);
  fs::remove_all(dir / "tiny");
  EXPECT_EQ(check_files(entry), FilesState::Missing);
  entry.downloaded = false;
  EXPECT_EQ(check_files(entry), FilesState::NotDownloaded);
  EXPECT_EQ(check_files(builtin_entry()), FilesState::Ready);
}

TEST(CheckFiles, AnotherProgramsEntryHasOnlyItsPath) {
  const test::TempDir dir;
  ModelEntry entry;
  entry.path = dir / "model.gguf";
  entry.downloaded = true;
  EXPECT_EQ(check_files(entry), FilesState::Missing);
  std::ofstream(dir / "model.gguf") << "x";
  EXPECT_EQ(check_files(entry), FilesState::Ready);
}

// Real files, with what their own tools say about them.
TEST(DescribeFiles, RealModelsAreWhatTheirMakersSay) {
  const auto data = test::data_path("weights");
  if (!data) GTEST_SKIP() << "no weights in the test data";
  const ModelEntry chat = describe(*data / "minimind2-small/hf");
  EXPECT_EQ(chat.architecture, "llama");
  EXPECT_EQ(chat.vocab_size, 6400);
  EXPECT_EQ(chat.quantization, "F16");
  const ModelEntry stories = describe(*data / "stories15M/stories15M-Q4_K_M.gguf");
  EXPECT_EQ(stories.architecture, "llama");
  EXPECT_EQ(stories.vocab_size, 32000);
  EXPECT_EQ(stories.quantization, "Q4_K_M");
  EXPECT_THAT(stories.backends, ElementsAre("cpu", "cuda"));
}

}  // namespace
}  // namespace llorch::catalog
