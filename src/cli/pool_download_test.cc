// `llorch-pool models download` as a user runs it, against a simulated hub.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "base/digest.h"
#include "base/json.h"
#include "hub_simulator/hub_simulator.h"
#include "support/child_process.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string gguf_text(std::string_view text) {
  return raw<std::uint64_t>(text.size()) + std::string(text);
}

// A GGUF of one tensor with random bytes, written by hand: cli may not name formats.
std::string make_gguf(std::uint64_t floats) {
  std::string head = "GGUF" + raw<std::uint32_t>(3) + raw<std::uint64_t>(1) +
                     raw<std::uint64_t>(1) + gguf_text("general.architecture") +
                     raw<std::uint32_t>(8) + gguf_text("llama") + gguf_text("token_embd.weight") +
                     raw<std::uint32_t>(1) + raw<std::uint64_t>(floats) + raw<std::uint32_t>(0) +
                     raw<std::uint64_t>(0);
  head.resize((head.size() + 31) / 32 * 32);
  return head + test::random_bytes(floats * 4, 5);
}

class PoolDownloadTest : public testing::Test {
 protected:
  PoolDownloadTest() {
    hub_.put_repo({.name = "org/tiny",
                   .commit = std::string(40, 'a'),
                   .license = "mit",
                   .files = {{"tiny.gguf", content_, true}}});
  }
  std::vector<std::string> variables() const {
    return {"LLORCH_HOME=" + (folder_ / "home").string(), "HF_ENDPOINT=" + hub_.url(),
            "HF_TOKEN=", "HOME=" + folder_.path().string()};
  }
  test::ProgramOutcome run(const std::vector<std::string>& arguments) {
    std::vector<std::string> all = variables();
    all.emplace_back(LLORCH_POOL);
    all.insert(all.end(), arguments.begin(), arguments.end());
    return test::run_program("/usr/bin/env", all);
  }
  void throttle(std::int64_t bytes_per_second) {
    hub_.add_fault({.path = "/lfs/", .times = 1'000'000, .bytes_per_second = bytes_per_second});
  }
  fs::path model() const {
    return folder_ / "home" / "models" / "tiny" / std::string(40, 'a') / "tiny.gguf";
  }

  test::TempDir folder_;
  test::HubSimulator hub_;
  const std::string content_ = make_gguf(5'000'000);  // 20 MB: three chunks
};

TEST_F(PoolDownloadTest, InAPipePlainLinesOnly) {
  const test::ProgramOutcome outcome = run({"models", "download", "hf:org/tiny"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("tiny: 19.1 MiB gguf F32 llama in " + model().string()));
  EXPECT_THAT(outcome.err, HasSubstr("100 %  19.1 MiB of 19.1 MiB"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("\r")));
  EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b")));
  EXPECT_EQ(content_of(model()), content_);
  const test::ProgramOutcome again = run({"models", "download", "tiny"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("here already"));
}

TEST_F(PoolDownloadTest, JsonLinesAndTheEntryLast) {
  const test::ProgramOutcome outcome =
      run({"models", "download", "my", "--ref", "hf:org/tiny", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::istringstream lines(outcome.out);
  std::vector<json::Value> values;
  for (std::string line; std::getline(lines, line);) {
    const Result<json::Value> value = json::parse(line);
    ASSERT_TRUE(value.ok()) << line;
    values.push_back(*value);
  }
  ASSERT_GE(values.size(), 4U);
  EXPECT_EQ(values.front().at("event"), "resolved");
  EXPECT_EQ(values[values.size() - 2].at("event"), "done");
  EXPECT_EQ(values.back().at("id"), "my");
  EXPECT_EQ(values.back().at("downloaded"), true);
  EXPECT_EQ(json::view(values.back().at("files").at(0).at("sha256").as_string()),
            base::sha256_hex(content_));
}

TEST_F(PoolDownloadTest, CtrlCIsACleanEndThatIsTakenUp) {
  throttle(2'000'000);
  {
    test::ChildProcess child(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
    ASSERT_TRUE(child.wait_for_err("of 19.1 MiB")) << child.err();
    child.signal(SIGINT);
    EXPECT_EQ(child.wait(), 130);
    EXPECT_THAT(child.err(), HasSubstr("the same command goes on from here"));
  }
  EXPECT_FALSE(fs::exists(model()));
  hub_.clear_faults();
  hub_.forget_requests();
  EXPECT_EQ(run({"models", "download", "hf:org/tiny"}).exit_code, 0);
  EXPECT_EQ(content_of(model()), content_);
  EXPECT_LT(hub_.bytes_sent("/lfs/"), static_cast<std::int64_t>(content_.size()));
}

TEST_F(PoolDownloadTest, Kill9IsTakenUpToo) {
  throttle(3'000'000);
  for (int i = 0; i < 2; ++i) {
    test::ChildProcess child(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
    // A state was saved.
    const fs::path state = model().string() + ".part.json";
    while (!fs::exists(state) && child.is_running())
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    child.signal(SIGKILL);
    EXPECT_EQ(child.wait(), -1);
  }
  hub_.clear_faults();
  hub_.forget_requests();
  const test::ProgramOutcome outcome = run({"models", "download", "hf:org/tiny"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(content_of(model()), content_);
  EXPECT_LT(hub_.bytes_sent("/lfs/"), static_cast<std::int64_t>(content_.size()));
  EXPECT_EQ(std::distance(fs::directory_iterator(model().parent_path()), {}), 1);
}

TEST_F(PoolDownloadTest, TheSecondOfTwoIsToldWhoIsAtIt) {
  throttle(200'000);
  test::ChildProcess first(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
  while (hub_.requests("/lfs/").empty() && first.is_running())
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const test::ProgramOutcome second = run({"models", "download", "hf:org/tiny"});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr(std::to_string(first.pid())));
  EXPECT_TRUE(first.is_running());
}

TEST_F(PoolDownloadTest, MistakesAreUsage) {
  EXPECT_EQ(run({"models", "download"}).exit_code, 2);
  EXPECT_EQ(run({"models", "download", "hf:"}).exit_code, 2);
  EXPECT_EQ(run({"models", "download", "hf:a/b", "--ref", "hf:a/b"}).exit_code, 2);
  EXPECT_EQ(run({"models", "download", "x", "--connections", "0"}).exit_code, 2);
  EXPECT_EQ(run({"models", "download", "x", "--from", "a b"}).exit_code, 2);
  const test::ProgramOutcome unknown = run({"models", "download", "tinylama"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean tinyllama?"));
  const test::ProgramOutcome help = run({"models", "download", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
}

}  // namespace
}  // namespace llorch::cli
