// A host gets other versions of our programs while it works: its answers and workers stay, and a
// version that does not run is replaced by the one before it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/process_table.h"
#include "fleet_cli/fleet_home.h"
#include "support/child_process.h"
#include "support/eventually.h"
#include "support/run_program.h"
#include "support/test_paths.h"
#include "support/test_sshd.h"

namespace llorch {
namespace {

namespace fs = std::filesystem;
using test::content_of, test::eventually, test::ProgramOutcome;
using ::testing::HasSubstr, ::testing::Not, ::testing::StartsWith;

class FleetUpgrade : public ::testing::Test {
 protected:
  void SetUp() override {
    sshd_ = test::TestSshd::start();
    if (sshd_ == nullptr) GTEST_SKIP() << "no sshd";
    test::strip_programs(programs_.path());
    fs::create_directories(there() / ".config" / "llorch");
    std::ofstream(there() / ".config" / "llorch" / "config.toml")
        << "[pool]\nport = 0\n[worker]\nthreads = 1\n";
    std::vector<std::string> environment = test::reaching(*sshd_, programs_.path());
    for (const char* name : {"CONFIG", "DATA", "STATE", "CACHE"})
      environment.push_back(fmt::format("XDG_{}_HOME=", name));
    home_ = std::make_unique<test::FleetHome>(std::move(environment));
  }

  void TearDown() override {
    if (sshd_ == nullptr) return;
    const std::string mark = "HOME=" + there().string();
    EXPECT_EQ(home_->llorch({"down", "testhost"}).exit_code, 0);
    EXPECT_TRUE(eventually([&] { return base::processes_with_variable(mark).empty(); }))
        << "nothing stays there";
    for (const int pid : base::processes_with_variable(mark)) ::kill(pid, SIGKILL);
    if (HasFailure()) {
      fprintf(stderr, "--- of the host\n%s\n",
              content_of(there() / ".local/state/llorch/logs/pool.log").c_str());
    }
    home_.reset();
  }

  fs::path there() const { return sshd_->home(); }
  fs::path installed() const { return there() / ".local/lib/llorch"; }
  fs::path current() const { return fs::read_symlink(installed() / "current"); }

  // Programs that do the same and are another version: no loader looks behind their end.
  void change_programs() const {
    std::ofstream(programs_ / "pool-managerd", std::ios::app | std::ios::binary) << '\n';
  }
  void break_programs() const {
    fs::remove(programs_ / "pool-managerd");
    std::ofstream(programs_ / "pool-managerd") << "#!/bin/sh\nexit 1\n";
    fs::permissions(programs_ / "pool-managerd", fs::perms(0755));
  }

  ProgramOutcome up() const { return home_->llorch({"up", "testhost"}); }
  std::string up_well() const {
    const ProgramOutcome done = up();
    EXPECT_EQ(done.exit_code, 0) << done.out << done.err;
    EXPECT_THAT(done.out, HasSubstr("testhost is up and takes work"));
    return current().string();
  }

  // The manager that serves there; 0: none.
  int manager() const {
    const Result<json::Value> address =
        json::parse(content_of(there() / ".local/state/llorch/pool.json"));
    const int pid = address.ok() ? static_cast<int>(address->at("pid").as_int64()) : 0;
    return base::identify_process(pid) ? pid : 0;
  }
  bool runs_current() const {
    return base::program_of(manager()) == installed() / current() / "pool-managerd";
  }

  ProgramOutcome pool(std::vector<std::string> words) const {
    words.insert(words.begin(), "pool");
    words.insert(words.end(), {"--host", "testhost"});
    return home_->llorch(std::move(words));
  }
  std::vector<int> workers() const {
    std::vector<int> pids;
    const ProgramOutcome listed = pool({"worker", "list", "--json"});
    const Result<json::Value> list = json::parse(listed.out);
    EXPECT_TRUE(list.ok()) << listed.out << listed.err;
    if (!list.ok()) return pids;
    for (const json::Value& worker : list->at("workers").as_array())
      pids.push_back(static_cast<int>(worker.at("pid").as_int64()));
    return pids;
  }
  int spawn() const {
    const ProgramOutcome done =
        pool({"worker", "spawn", "cpu", "--model", "builtin", "--slots", "1"});
    EXPECT_EQ(done.exit_code, 0) << done.out << done.err;
    const std::vector<int> pids = workers();
    return pids.empty() ? 0 : pids.back();
  }

  json::Value host() const {
    const json::Value list = home_->json({"hosts"});
    for (const json::Value& one : list.at("hosts").as_array())
      if (one.at("name") == "testhost") return one;
    return json::Object{{"state", "not there"}};
  }

  static std::vector<std::string> question() {
    return {"jobs", "submit", "-m",     "builtin", "-p",    "Once upon a time",
            "-n",   "400",    "--temp", "0",       "--pin", "testhost"};
  }
  // An answer whose worker stands still in the middle of it, or nothing after many tries.
  std::unique_ptr<test::ChildProcess> begin_answer(int worker, const std::string& whole) const {
    constexpr int kTries = 20;
    // What was told before the worker stood still may be on its way so long.
    constexpr std::chrono::milliseconds kOnItsWay(500);
    for (int i = 0; i < kTries; ++i) {
      auto answer = std::make_unique<test::ChildProcess>(LLORCH, question(), home_->environment());
      const bool has_begun = eventually([&] { return !answer->out().empty(); });
      ::kill(worker, SIGSTOP);
      const auto is_whole = [&] { return answer->out().size() >= whole.size(); };
      if (has_begun && !eventually(is_whole, kOnItsWay)) return answer;
      ::kill(worker, SIGCONT);
      answer->wait();
    }
    return nullptr;
  }

  test::TempDir programs_;
  std::unique_ptr<test::TestSshd> sshd_;
  std::unique_ptr<test::FleetHome> home_;
};

TEST_F(FleetUpgrade, AnswersAndWorkersOutliveIt) {
  const std::string first = up_well();
  const int worker = spawn();
  const ProgramOutcome whole = home_->llorch(question());
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const int before = manager();
  ASSERT_GT(before, 0);
  EXPECT_EQ(up_well(), first);
  EXPECT_EQ(manager(), before) << "nothing is new";

  const auto answer = begin_answer(worker, whole.out);
  ASSERT_NE(answer, nullptr) << "the worker is always faster than we are";
  change_programs();
  auto upgrade = std::async(std::launch::async, [this] { return up_well(); });
  EXPECT_TRUE(eventually([&] { return manager() != before && manager() != 0; }));
  const std::string part = answer->out();
  ::kill(worker, SIGCONT);
  EXPECT_NE(upgrade.get(), first);
  EXPECT_LT(part.size(), whole.out.size()) << "it was under way when the manager went";
  EXPECT_THAT(whole.out, StartsWith(part));
  EXPECT_EQ(answer->wait(), 0) << answer->err();
  EXPECT_EQ(answer->out(), whole.out);
  EXPECT_TRUE(runs_current());
  EXPECT_THAT(workers(), ::testing::ElementsAre(worker));
  EXPECT_EQ(base::program_of(worker), installed() / first / "llorch-cpud") << "as it was started";
}

TEST_F(FleetUpgrade, AVersionThatDoesNotRunIsReplacedByTheOneBefore) {
  const std::string first = up_well();
  const int worker = spawn();
  break_programs();
  const ProgramOutcome broken = up();
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.out, HasSubstr("testhost is up and takes work"));
  EXPECT_THAT(broken.err, HasSubstr("testhost was not upgraded: it runs the version before"));
  EXPECT_THAT(broken.err, HasSubstr("the pool manager did not start"));
  EXPECT_EQ(current(), first);
  EXPECT_TRUE(runs_current());
  EXPECT_EQ(host().at("state"), "connected");
  EXPECT_THAT(home_->llorch({"hosts"}).out, HasSubstr("it runs the version before"));
  EXPECT_THAT(workers(), ::testing::ElementsAre(worker));
  EXPECT_EQ(home_->llorch(question()).exit_code, 0);

  // With programs that run, nothing is left of it.
  fs::remove(programs_ / "pool-managerd");
  fs::copy_file(installed() / first / "pool-managerd", programs_ / "pool-managerd");
  change_programs();
  EXPECT_NE(up_well(), first);
  EXPECT_TRUE(runs_current());
  EXPECT_FALSE(host().as_object().contains("note"));
}

TEST_F(FleetUpgrade, ManyVersionsInARowLeaveAHostThatWorks) {
  const std::string first = up_well();
  const int worker = spawn();
  for (int i = 0; i < 3; ++i) {
    change_programs();
    up_well();
    EXPECT_TRUE(runs_current()) << i;
  }
  EXPECT_TRUE(fs::exists(installed() / first)) << "its worker's keeper is there";
  EXPECT_THAT(workers(), ::testing::ElementsAre(worker));
  const int newer = spawn();
  EXPECT_EQ(base::program_of(newer), installed() / current() / "llorch-cpud");
  EXPECT_EQ(home_->llorch(question()).exit_code, 0);

  // Also by an orchestrator that comes back with other programs.
  ASSERT_EQ(home_->llorch({"down"}).exit_code, 0);
  const int before = manager();
  change_programs();
  ASSERT_EQ(home_->llorch({"up"}).exit_code, 0);
  EXPECT_TRUE(eventually([&] { return host().at("state") == "connected"; }));
  EXPECT_NE(manager(), before);
  EXPECT_TRUE(runs_current());
  EXPECT_EQ(workers().size(), 2U);
}

TEST_F(FleetUpgrade, AServiceIsStartedAnewByItsServiceManager) {
  test::write_fake_systemd(there());
  const std::string first = up_well();
  const int service = std::stoi(content_of(there() / "service.pid"));
  ASSERT_EQ(base::children_of(service), std::vector<int>{manager()});
  const int worker = spawn();
  change_programs();
  EXPECT_NE(up_well(), first);
  EXPECT_TRUE(runs_current());
  EXPECT_EQ(base::children_of(service), std::vector<int>{manager()}) << "it is the service still";

  const std::string second = current();
  break_programs();
  const ProgramOutcome broken = up();
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.err, HasSubstr("it runs the version before"));
  EXPECT_EQ(current(), second);
  EXPECT_TRUE(runs_current());
  EXPECT_EQ(base::children_of(service), std::vector<int>{manager()});
  EXPECT_THAT(workers(), ::testing::ElementsAre(worker));
}

}  // namespace
}  // namespace llorch
