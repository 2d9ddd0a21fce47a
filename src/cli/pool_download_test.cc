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
  test::ProgramOutcome run(const std::vector<std::string>& arguments,
                           const std::vector<std::string>& more_variables = {}) {
    std::vector<std::string> all = variables();
    all.insert(all.end(), more_variables.begin(), more_variables.end());
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

TEST_F(PoolDownloadTest, TheSecondOfTwoJoinsTheFirst) {
  throttle(2'000'000);
  test::ChildProcess first(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
  ASSERT_TRUE(first.wait_for_err("of 19.1 MiB")) << first.err();
  test::ChildProcess leaver(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
  const std::string process = fmt::format("process {}", first.pid());
  ASSERT_TRUE(leaver.wait_for_err(process)) << leaver.err();
  leaver.signal(SIGINT);
  EXPECT_EQ(leaver.wait(), 130);
  test::ChildProcess second(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
  ASSERT_TRUE(second.wait_for_err(process)) << second.err();
  EXPECT_TRUE(first.is_running()) << "whoever joined and left did it no harm";
  const test::ProgramOutcome list = run({"models", "downloads"});
  EXPECT_THAT(list.out, HasSubstr(fmt::format("process-{}", first.pid())));
  hub_.clear_faults();
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(second.err(), HasSubstr("here already"));
  EXPECT_EQ(content_of(model()), content_);
  EXPECT_LT(hub_.bytes_sent("/lfs/"), static_cast<std::int64_t>(content_.size()) * 3 / 2);
}

TEST_F(PoolDownloadTest, ASilentHubIsNamedInAPipeToo) {
  hub_.add_fault({.path = "/api/", .times = 1'000'000, .stall_head = true});
  test::ChildProcess child(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
  const std::string host = hub_.url().substr(std::string("http://").size());
  EXPECT_TRUE(child.wait_for_err("tiny: waiting for " + host)) << child.err();
  child.signal(SIGINT);
  EXPECT_EQ(child.wait(), 130);
}

// The simulator is the proxy: it is asked for whole addresses, of a port where nobody listens.
TEST_F(PoolDownloadTest, GoesThroughTheProxyThatTheEnvironmentNames) {
  const std::string address = "http://localhost:1/a.gguf";
  hub_.put_file(address, {.content = content_, .etag = "\"a\""});
  const test::ProgramOutcome through = run({"models", "download", address, "--id", "far"},
                                           {"http_proxy=" + hub_.url(), "no_proxy="});
  EXPECT_EQ(through.exit_code, 0) << through.err;
  EXPECT_FALSE(hub_.requests(address).empty());
  // Hosts of no_proxy are asked themselves.
  hub_.put_file("/near.gguf", {.content = content_, .etag = "\"a\""});
  const test::ProgramOutcome direct =
      run({"models", "download", hub_.url() + "/near.gguf", "--id", "near"},
          {"http_proxy=http://127.0.0.1:1", "no_proxy=127.0.0.1"});
  EXPECT_EQ(direct.exit_code, 0) << direct.err;
}

TEST_F(PoolDownloadTest, AFileByItsAddressWithAHash) {
  hub_.put_file("/files/a.gguf", {.content = content_, .etag = "\"a\""});
  const std::string address = hub_.url() + "/files/a.gguf";
  const test::ProgramOutcome wrong =
      run({"models", "download", address, "--sha256", std::string(64, '0')});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr(base::sha256_hex(content_)));
  const test::ProgramOutcome plain = run({"models", "download", address, "--id", "mine"});
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.out, HasSubstr("mine: "));
  EXPECT_THAT(plain.err, HasSubstr("nothing to check it against"));
  std::string upper = base::sha256_hex(content_);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const test::ProgramOutcome right = run({"models", "download", address, "--sha256", upper});
  EXPECT_EQ(right.exit_code, 0) << right.err;
  EXPECT_THAT(right.err, Not(HasSubstr("nothing to check")));
}

TEST_F(PoolDownloadTest, ARefusedAddressSaysWhatToDo) {
  hub_.put_file("/files/a.gguf", {.content = content_, .etag = "\"a\""});
  for (const auto& [status, advice] :
       {std::pair(401, "models register"), {403, "HF_TOKEN"}, {404, "check the address"}}) {
    hub_.clear_faults();
    hub_.add_fault({.path = "/files/", .times = 1'000'000, .status = status});
    const test::ProgramOutcome outcome =
        run({"models", "download", hub_.url() + "/files/a.gguf", "--id", "a"});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, HasSubstr(std::to_string(status)));
    EXPECT_THAT(outcome.err, HasSubstr(advice));
  }
}

TEST_F(PoolDownloadTest, PruneAsksAndRemovesOnlyWhatIsLeftOver) {
  EXPECT_EQ(run({"models", "prune"}).out, "nothing is left over\n");
  throttle(2'000'000);
  {
    test::ChildProcess child(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
    ASSERT_TRUE(child.wait_for_err("of 19.1 MiB")) << child.err();
    EXPECT_EQ(run({"models", "prune", "--yes"}).out, "nothing is left over\n") << "it runs";
    child.signal(SIGKILL);
    EXPECT_EQ(child.wait(), -1);
  }
  const fs::path folder = folder_ / "home" / "models" / "tiny";
  ASSERT_TRUE(fs::exists(folder));
  const test::ProgramOutcome list = run({"models", "list"});
  EXPECT_THAT(list.out, HasSubstr("left over by downloads"));
  EXPECT_THAT(run({"status"}).out, HasSubstr("left over by downloads"));
  const test::ProgramOutcome dry = run({"models", "prune", "--dry-run", "--json"});
  EXPECT_EQ(dry.exit_code, 0);
  const Result<json::Value> value = json::parse(dry.out);
  ASSERT_TRUE(value.ok()) << dry.out;
  EXPECT_EQ(value->at("leftovers").at(0).at("kind"), "unfinished_download");
  EXPECT_EQ(value->at("leftovers").at(0).at("ref"), "hf:org/tiny");
  const test::ProgramOutcome unasked = run({"models", "prune"});
  EXPECT_EQ(unasked.exit_code, 2) << "nobody there to say yes";
  EXPECT_TRUE(fs::exists(folder));
  const test::ProgramOutcome gone = run({"models", "prune", "--yes"});
  EXPECT_EQ(gone.exit_code, 0) << gone.err;
  EXPECT_THAT(gone.out, HasSubstr("unfinished download"));
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_THAT(run({"models", "list"}).out, Not(HasSubstr("left over")));
}

// A pool manager in the same home.
class ManagedDownloadTest : public PoolDownloadTest {
 protected:
  ManagedDownloadTest() : manager_(LLORCH_POOL, {"serve", "--port", "0"}, variables()) {
    const fs::path address = folder_ / "home" / "pool.json";
    for (int i = 0; i < 2000 && !fs::exists(address) && manager_.is_running(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(fs::exists(address)) << manager_.err();
  }
  // The id of the one download that is under way.
  std::string under_way() {
    const Result<json::Value> list = json::parse(run({"models", "downloads", "--json"}).out);
    if (!list.ok() || list->at("downloads").get_array().empty()) return "none";
    return std::string(json::view(list->at("downloads").at(0).at("id").as_string()));
  }

  test::ChildProcess manager_;
};

TEST_F(ManagedDownloadTest, TheManagerFetchesAndEverybodyCanWatch) {
  throttle(2'000'000);
  test::ChildProcess first(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
  ASSERT_TRUE(first.wait_for_err("of 19.1 MiB")) << first.err();
  const std::string id = under_way();
  EXPECT_THAT(id, testing::StartsWith("dl-"));
  EXPECT_THAT(run({"models", "downloads"}).out,
              testing::AllOf(HasSubstr(id), HasSubstr("running")));
  EXPECT_THAT(run({"status"}).out, HasSubstr(id));
  test::ChildProcess joined(LLORCH_POOL, {"models", "download", "org/tiny"}, variables());
  ASSERT_TRUE(joined.wait_for_err("at it already")) << joined.err();
  joined.signal(SIGINT);
  EXPECT_EQ(joined.wait(), 130);
  EXPECT_THAT(joined.err(), HasSubstr("downloads cancel " + id));
  test::ChildProcess watcher(LLORCH_POOL, {"models", "downloads", "watch"}, variables());
  ASSERT_TRUE(watcher.wait_for_err("of 19.1 MiB")) << watcher.err();
  EXPECT_EQ(under_way(), id) << "still the same";
  hub_.clear_faults();
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_THAT(first.out(), HasSubstr("tiny: 19.1 MiB gguf F32 llama in " + model().string()));
  EXPECT_EQ(watcher.wait(), 0);
  EXPECT_EQ(content_of(model()), content_);
  EXPECT_EQ(run({"models", "downloads"}).out, "nothing is being downloaded\n");
  EXPECT_THAT(run({"models", "downloads", "--all"}).out, HasSubstr("done"));
}

TEST_F(ManagedDownloadTest, CtrlCEndsWhatTheCommandBegan) {
  throttle(2'000'000);
  test::ChildProcess first(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
  ASSERT_TRUE(first.wait_for_err("of 19.1 MiB")) << first.err();
  first.signal(SIGINT);
  EXPECT_EQ(first.wait(), 130);
  EXPECT_THAT(first.err(), HasSubstr("the same command goes on from here"));
  for (int i = 0; i < 2000 && under_way() != "none"; ++i) {
  }
  EXPECT_EQ(under_way(), "none");
  test::ChildProcess second(LLORCH_POOL, {"models", "download", "hf:org/tiny"}, variables());
  ASSERT_TRUE(second.wait_for_err("of 19.1 MiB")) << second.err();
  const test::ProgramOutcome cancelled = run({"models", "downloads", "cancel", under_way()});
  EXPECT_EQ(cancelled.exit_code, 0) << cancelled.err;
  EXPECT_EQ(second.wait(), 1) << "somebody else cancelled it";
  EXPECT_THAT(second.err(), HasSubstr("cancelled"));
  EXPECT_EQ(run({"models", "downloads", "cancel", "dl-none"}).exit_code, 1);
  EXPECT_EQ(run({"models", "prune", "--yes"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "home" / "models" / "tiny"));
  const test::ProgramOutcome unknown = run({"models", "download", "tinylama"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean tinyllama?"));
}

TEST_F(ManagedDownloadTest, TheUsersTokenGoesAlong) {
  hub_.put_repo({.name = "org/gated",
                 .commit = std::string(40, 'b'),
                 .gated = true,
                 .token = "hf_mine",
                 .files = {{"gated.gguf", content_, true}}});
  EXPECT_EQ(run({"models", "download", "hf:org/gated"}).exit_code, 1);
  std::vector<std::string> all = variables();
  for (const char* one : {"HF_TOKEN=hf_mine", LLORCH_POOL, "models", "download", "hf:org/gated"})
    all.emplace_back(one);
  const test::ProgramOutcome outcome = test::run_program("/usr/bin/env", all);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(manager_.err() + manager_.out(), Not(HasSubstr("hf_mine")));
}

TEST_F(PoolDownloadTest, MistakesAreUsage) {
  EXPECT_EQ(run({"models", "download"}).exit_code, 2);
  EXPECT_EQ(run({"models", "download", "hf:"}).exit_code, 2);
  EXPECT_EQ(run({"models", "download", "hf:a/b", "--ref", "hf:a/b"}).exit_code, 2);
  EXPECT_EQ(run({"models", "download", "x", "--connections", "0"}).exit_code, 2);
  EXPECT_EQ(run({"models", "download", "x", "--sha256", "12"}).exit_code, 2);
  EXPECT_EQ(run({"models", "download", "x", "--id", "y"}).exit_code, 2);
  EXPECT_EQ(run({"models", "download", "hf:a/b", "--id", "a/b"}).exit_code, 2);
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
