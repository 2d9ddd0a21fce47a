// Checks of the matrix that start programs, with scripts in the programs' place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "cli/matrix_checks.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Nobody is asked by these checks.
class SilentModel : public ModelClient {
 public:
  Result<ModelFacts> facts() const override { return ModelFacts{}; }
  Result<Heard> ask(const Asked&, std::stop_token) const override { return Error{}; }
  Result<double> cancel_after(const Asked&, std::size_t, std::stop_token) const override {
    return Error{};
  }
  Result<json::Object> chat(const Asked&, std::stop_token) const override { return Error{}; }
};

fs::path write_script(const fs::path& path, const std::string& body) {
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

// The script of a worker: `model` is what it was given.
std::string worker(const std::string& body) {
  return "while [ $# -gt 0 ]; do [ \"$1\" = --model ] && model=$2; shift; done\n" + body;
}

CheckResult cut(const fs::path& program, const fs::path& files) {
  const SilentModel model;
  Subject subject{.client = model, .backend = "cpu", .files = files, .program = program};
  MatrixCell cell;
  return check_cut_file(subject, cell);
}

TEST(MatrixPrograms, AFileIsCutAtTwoThirds) {
  const test::TempDir folder;
  std::ofstream(folder / "m.gguf") << std::string(300, 'x');
  const fs::path program = write_script(
      folder / "worker", worker("echo \"$(wc -c < $model) bytes are not enough\" >&2; exit 1"));
  const CheckResult result = cut(program, folder / "m.gguf");
  EXPECT_EQ(result.state, CheckState::Passed) << result.detail;
  EXPECT_EQ(result.detail, "200 bytes are not enough");
  EXPECT_EQ(fs::file_size(folder / "m.gguf"), 300U);
  const fs::path careless = write_script(folder / "careless", "exit 0");
  EXPECT_EQ(cut(careless, folder / "m.gguf").state, CheckState::Failed);
  const fs::path silent = write_script(folder / "silent", "exit 1");
  EXPECT_THAT(cut(silent, folder / "m.gguf").detail, HasSubstr("without a word"));
}

TEST(MatrixPrograms, OfALargeFileTheFrontIsCopiedAndTheRestTakesNoRoom) {
  const test::TempDir folder;
  constexpr std::uintmax_t kSize = std::uintmax_t{3} << 30;
  std::ofstream(folder / "m.gguf") << "GGUF";
  fs::resize_file(folder / "m.gguf", kSize);
  const fs::path program = write_script(
      folder / "worker", worker("echo $(head -c 4 $model) $(stat -c '%s %b' $model) >&2; exit 1"));
  const CheckResult result = cut(program, folder / "m.gguf");
  ASSERT_EQ(result.state, CheckState::Passed) << result.detail;
  std::istringstream said(result.detail);
  std::string front;
  std::uintmax_t size = 0;
  std::uintmax_t blocks = kSize;
  said >> front >> size >> blocks;
  EXPECT_EQ(front, "GGUF");
  EXPECT_EQ(size, kSize / 3 * 2);
  EXPECT_LE(blocks * 512, std::uintmax_t{65} << 20);
}

TEST(MatrixPrograms, OfAFolderTheLargestWeightsAreCutAndTheRestIsThere) {
  const test::TempDir folder;
  fs::create_directories(folder / "hf/other");
  std::ofstream(folder / "hf/config.json") << std::string(900, 'x');
  std::ofstream(folder / "hf/model-1.safetensors") << std::string(600, 'x');
  std::ofstream(folder / "hf/model-2.safetensors") << std::string(30, 'x');
  const fs::path program =
      write_script(folder / "worker", worker("cd $model && echo $(wc -c < config.json) $(wc -c < "
                                             "model-1.safetensors) $(wc -c < "
                                             "model-2.safetensors) >&2; exit 1"));
  const CheckResult result = cut(program, folder / "hf");
  EXPECT_EQ(result.state, CheckState::Passed) << result.detail;
  EXPECT_EQ(result.detail, "900 400 30");
  EXPECT_EQ(fs::file_size(folder / "hf/model-1.safetensors"), 600U);
  fs::create_directories(folder / "empty");
  EXPECT_EQ(cut(program, folder / "empty").state, CheckState::Skipped);
}

TEST(MatrixPrograms, WhatCannotBeFetchedIsSkippedWithTheReason) {
  const test::TempDir folder;
  write_script(
      folder / "llorch-pool",
      "[ \"$1 $2 $3\" = 'models download good' ] && exit 0\necho 'no such host' >&2; exit 1");
  EXPECT_EQ(fetch_model("good", folder.path(), {}).state, CheckState::Passed);
  const CheckResult result = fetch_model("bad", folder.path(), {});
  EXPECT_EQ(result.state, CheckState::Skipped);
  EXPECT_EQ(result.detail, "cannot be had: no such host");
  EXPECT_EQ(fetch_model("good", folder / "none", {}).state, CheckState::Failed);
}

contract::ModelEntry known(const std::string& id, const std::string& type) {
  contract::ModelEntry entry;
  entry.id = id;
  entry.quantization = type;
  return entry;
}

TEST(MatrixPrograms, WeightsThatCannotBeHadAreDrawnOnce) {
  const test::TempDir folder;
  fs::create_directories(folder / "tokenizers/tinyllama");
  std::ofstream(folder / "tokenizers/phi3.gguf") << "GGUF";
  write_script(folder / "llorch-convert",
               "case $* in *phi-3*) echo 'no space is left' >&2; exit 1;; esac\necho \"$@\" > $3");
  const auto draw = [&](const contract::ModelEntry& model) {
    return draw_model(model, folder / "tokenizers", folder / "cache/random", folder.path(), {});
  };
  const DrawnModel drawn = draw(known("tinyllama", "Q4_K_M"));
  EXPECT_EQ(drawn.check.state, CheckState::Passed) << drawn.check.detail;
  EXPECT_EQ(drawn.check.detail,
            "random weights of the shape tinyllama-1.1b, Q4_K_M, seed 1, with the tokenizer "
            "tinyllama");
  EXPECT_EQ(drawn.file.string(),
            (folder / "cache/random/tinyllama-1.1b-q4_k_m-seed1-tinyllama.gguf").string());
  std::string words;
  std::getline(std::ifstream(drawn.file), words);
  EXPECT_EQ(words, "--random tinyllama-1.1b " + drawn.file.string() +
                       " --type q4_k_m --seed 1 --tokenizer " +
                       (folder / "tokenizers/tinyllama").string());
  // A vocabulary in a GGUF file will do; what the program says when it cannot is told.
  const DrawnModel full = draw(known("phi3", "Q4_K_M"));
  EXPECT_EQ(full.check.state, CheckState::Failed);
  EXPECT_EQ(full.check.detail, "no space is left");
  EXPECT_TRUE(full.file.empty());
  // What was drawn is there the next time.
  fs::remove(folder / "llorch-convert");
  EXPECT_EQ(draw(known("tinyllama", "Q4_K_M")).file.string(), drawn.file.string());
  EXPECT_EQ(draw(known("tinyllama", "Q8_0")).check.state, CheckState::Failed);
  // Not with another tokenizer, which is known by what a link leads to.
  fs::rename(folder / "tokenizers/tinyllama", folder / "llama2");
  fs::create_directory_symlink(folder / "llama2", folder / "tokenizers/tinyllama");
  EXPECT_EQ(draw(known("tinyllama", "Q4_K_M")).check.state, CheckState::Failed);
  write_script(folder / "llorch-convert", "echo > $3");
  EXPECT_THAT(draw(known("tinyllama", "Q4_K_M")).check.detail, HasSubstr("the tokenizer llama2"));
}

TEST(MatrixPrograms, WhatHasNoShapeOrNoTokenizerIsNotDrawn) {
  const test::TempDir folder;
  const auto why = [&](const char* id) {
    const DrawnModel drawn =
        draw_model(known(id, "Q4_K_M"), folder.path(), folder / "cache", folder.path(), {});
    EXPECT_EQ(drawn.check.state, CheckState::Skipped);
    EXPECT_FALSE(fs::exists(folder / "cache"));
    return drawn.check.detail;
  };
  EXPECT_THAT(why("mistral"), HasSubstr("neither mistral nor mistral.gguf"));
  EXPECT_THAT(why("tinyllama:safetensors"), HasSubstr("no shape of that name"));
}

}  // namespace
}  // namespace llorch::cli
