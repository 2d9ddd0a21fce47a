// Checks of the matrix that start programs, with scripts in the programs' place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
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
  Result<json::Object> chat(std::string_view, std::int32_t, std::stop_token) const override {
    return Error{};
  }
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

}  // namespace
}  // namespace llorch::cli
