// The fleet from nothing to answers and back to nothing, on this machine and on a host that only
// runs sshd.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <future>
#include <sstream>

#include "base/json.h"
#include "base/process_table.h"
#include "fleet_cli/fleet_home.h"
#include "support/eventually.h"
#include "support/run_program.h"
#include "support/test_paths.h"
#include "support/test_sshd.h"

namespace llorch {
namespace {

namespace fs = std::filesystem;
using test::content_of, test::eventually, test::FleetHome, test::ProgramOutcome, test::reaching,
    test::strip_programs, test::write_fake_systemd;
using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;

TEST(FleetUp, OneMachineFromNothingToAnswersAndBack) {
  const FleetHome home;
  const ProgramOutcome up = home.llorch({"up"});
  ASSERT_EQ(up.exit_code, 0) << up.err;
  EXPECT_THAT(up.out, HasSubstr("orchestrator  http://127.0.0.1:"));
  EXPECT_THAT(up.out, HasSubstr("llk_"));
  EXPECT_THAT(up.out, HasSubstr("this machine needs none"));
  EXPECT_EQ(fs::status(home.path() / "key").permissions(), fs::perms(0600));

  // The line that it shows works as it stands.
  const std::size_t begin = up.out.find("curl ");
  ASSERT_NE(begin, std::string::npos) << up.out;
  const std::string line = up.out.substr(begin, up.out.find('\n', begin) - begin);
  if (fs::exists("/usr/bin/curl")) {
    const ProgramOutcome curl = test::run_program("/bin/sh", {"-c", line + " --silent"});
    EXPECT_EQ(curl.exit_code, 0) << line;
    EXPECT_THAT(curl.out, HasSubstr("\"choices\"")) << line;
  }

  const json::Value again = home.json({"up"});
  EXPECT_EQ(again.at("started"), false) << "what runs is left alone";

  // One that was told to end a moment ago, and has not yet, is waited for.
  const fs::path address = home.path() / "orchestrator.json";
  ASSERT_GT(home.orchestrator(), 0);
  ::kill(home.orchestrator(), SIGTERM);
  ASSERT_TRUE(eventually([&address] { return !fs::exists(address); }));
  const json::Value restarted = home.json({"up"});
  EXPECT_EQ(restarted.at("started"), true);
  EXPECT_EQ(restarted.at("pool_started"), false);

  const ProgramOutcome told = home.llorch(
      {"jobs", "submit", "-m", "builtin", "-p", "Once upon a time", "-n", "12", "--temp", "0"});
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out, Not(IsEmpty()));
  const ProgramOutcome run =
      home.llorch({"run", "-n", "12", "--temp", "0", "--raw", "Once upon a time"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, told.out) << "`run` is a job of the fleet";
  const ProgramOutcome form = home.llorch({"run", "-n", "12", "--temp", "0", "Once upon a time"});
  EXPECT_EQ(form.out, told.out) << "a model without a template continues the text: " << form.err;

  const ProgramOutcome status = home.llorch({"status"});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("local/worker-cpu-0"));
  ASSERT_EQ(home.llorch({"pool", "--host", "local", "worker", "spawn", "cpu", "--model", "builtin",
                         "--ctx", "64", "--slots", "1"})
                .exit_code,
            0);
  ASSERT_TRUE(
      eventually([&home] { return home.json({"status"}).at("workers").as_array().size() == 2; }));
  const json::Value workers = home.json({"status"}).at("workers");
  EXPECT_EQ(workers.at(0).at("pinned"), false) << "a job started it, and its rest will end it";
  EXPECT_EQ(workers.at(1).at("pinned"), true) << "somebody started it, and it stays";
  const json::Value list = home.json({"jobs", "list"});
  ASSERT_GE(list.at("tasks").as_array().size(), 2U);
  const std::string job(list.at("tasks").at(0).at("job_id").as_string());
  EXPECT_THAT(home.llorch({"jobs", "show", job}).out, HasSubstr("completed"));
  EXPECT_THAT(home.llorch({"why", job}).out, HasSubstr("worker-cpu-0"));
  const ProgramOutcome logs = home.llorch({"jobs", "logs", job});
  EXPECT_EQ(logs.exit_code, 0) << logs.err;
  EXPECT_EQ(logs.out, told.out);

  const ProgramOutcome unknown =
      home.llorch({"jobs", "submit", "-m", "buitin", "-p", "Once", "-n", "3"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("builtin"));

  auto second = std::async(std::launch::async, [&home] { return home.llorch({"down"}); });
  const ProgramOutcome down = home.llorch({"down"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  const ProgramOutcome also = second.get();
  EXPECT_EQ(also.exit_code, 0) << "who comes second finds nothing left to do: " << also.err;
  // Either of them may be the first.
  EXPECT_THAT(down.out + also.out, HasSubstr("orchestrator stopped"));
  EXPECT_THAT(down.out + also.out, HasSubstr("pool stopped"));
  EXPECT_THAT(home.processes(), IsEmpty());
}

TEST(FleetUp, ThisMachineComesBackAfterItWasTakenDown) {
  const FleetHome home;
  ASSERT_EQ(home.llorch({"up"}).exit_code, 0);
  const std::vector<std::string> run = {"run", "-m", "builtin", "-n", "3", "--raw", "Once"};
  ASSERT_EQ(home.llorch({"down", "local"}).exit_code, 0);
  const ProgramOutcome away = home.llorch(run);
  EXPECT_EQ(away.exit_code, 1);
  EXPECT_THAT(away.err, HasSubstr("llorch up"));
  const ProgramOutcome up = home.llorch({"up"});
  EXPECT_EQ(up.exit_code, 0) << up.err;
  const ProgramOutcome back = home.llorch(run);
  EXPECT_EQ(back.exit_code, 0) << "what the message told to do helps: " << back.err;

  ASSERT_EQ(home.llorch({"down", "local"}).exit_code, 0);
  const ProgramOutcome by_name = home.llorch({"up", "local"});
  EXPECT_EQ(by_name.exit_code, 0) << "no ssh is asked for it: " << by_name.err;
  EXPECT_EQ(home.llorch(run).exit_code, 0);
}

TEST(FleetUp, ABatchOfPromptsAndItsBackup) {
  const FleetHome home;
  ASSERT_EQ(home.llorch({"up"}).exit_code, 0);
  std::ofstream file(home.path() / "prompts.jsonl");
  for (int i = 0; i < 12; ++i)
    file << fmt::format("{{\"prompt\":\"Story {}:\",\"id\":{}}}\n", i, i);
  file.close();
  const std::string out = (home.path() / "out.jsonl").string();
  // The orchestrator is killed in the middle and started again: nothing is lost or asked twice.
  auto batch = std::async(std::launch::async, [&home, &out] {
    return home.llorch({"jobs", "submit", "-m", "builtin", "--class", "batch", "-n", "8", "--file",
                        (home.path() / "prompts.jsonl").string(), "--out", out, "--parallel", "2"});
  });
  ASSERT_TRUE(eventually([&out] { return fs::exists(out) && fs::file_size(out) > 0; }));
  home.kill_orchestrator();
  ASSERT_EQ(home.llorch({"up"}).exit_code, 0);
  const ProgramOutcome done = batch.get();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  std::ifstream in(out);
  int lines = 0;
  for (std::string line; std::getline(in, line); ++lines) {
    const json::Value result = *json::parse(line);
    EXPECT_EQ(result.at("id"), lines);
    EXPECT_EQ(result.at("status"), "completed");
    const std::int64_t tokens = result.at("tokens_out").as_int64();
    // A story may end at any token, also at the first.
    EXPECT_TRUE(tokens == 8 || (tokens < 8 && result.at("stop_reason") == "eos")) << line;
  }
  EXPECT_EQ(lines, 12);
  EXPECT_EQ(home.json({"jobs", "list"}).at("tasks").as_array().size(), 12U);

  const std::string copy = (home.path() / "copy.db").string();
  EXPECT_EQ(home.llorch({"backup", copy}).exit_code, 0);
  EXPECT_EQ(home.llorch({"restore", copy}).exit_code, 1) << "it runs";
  const json::Value before = home.json({"jobs", "list"});
  EXPECT_EQ(home.llorch({"down"}).exit_code, 0);
  fs::remove(home.path() / "llorch.db");
  const ProgramOutcome restored = home.llorch({"restore", copy});
  EXPECT_EQ(restored.exit_code, 0) << restored.err;
  ASSERT_EQ(home.llorch({"up"}).exit_code, 0);
  EXPECT_EQ(home.json({"jobs", "list"}).at("tasks").as_array().size(),
            before.at("tasks").as_array().size());
}

TEST(FleetUp, AHostWhereOnlySshdRuns) {
  const auto sshd = test::TestSshd::start();
  if (sshd == nullptr) GTEST_SKIP() << "no sshd";
  const test::TempDir programs;
  strip_programs(programs.path());
  std::ofstream(sshd->home() / ".keep") << "";
  fs::create_directories(sshd->home() / ".config" / "llorch");
  std::ofstream(sshd->home() / ".config" / "llorch" / "config.toml")
      << "[pool]\nport = 0\n[worker]\nthreads = 1\n";
  const FleetHome home(reaching(*sshd, programs.path()));

  sshd->know_host_key(false);
  const ProgramOutcome unknown = home.llorch({"up", "testhost"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("--accept-new"));

  const ProgramOutcome up = home.llorch({"up", "testhost", "--accept-new"});
  ASSERT_EQ(up.exit_code, 0) << up.out << up.err;
  EXPECT_THAT(up.out, HasSubstr("testhost is up and takes work"));
  const ProgramOutcome hosts = home.llorch({"hosts"});
  EXPECT_THAT(hosts.out, HasSubstr("testhost"));

  // A job that runs there.
  const json::Value told = home.json({"jobs", "submit", "-m", "builtin", "-p", "Once upon a time",
                                      "-n", "12", "--temp", "0", "--pin", "testhost"});
  EXPECT_EQ(told.at("status"), "completed");
  const json::Value task = home.json({"jobs", "show", std::string(told.at("job_id").as_string())});
  EXPECT_EQ(task.at("host"), "testhost");

  // The whole of llorch-pool there, with its exit code.
  const ProgramOutcome there = home.llorch({"pool", "worker", "list", "--host", "testhost"});
  EXPECT_EQ(there.exit_code, 0) << there.err;
  EXPECT_THAT(there.out, HasSubstr("worker-cpu-0"));
  const ProgramOutcome wrong =
      home.llorch({"pool", "worker", "stop", "; rm -rf $(pwd)", "--host", "testhost"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err + wrong.out, HasSubstr("; rm -rf $(pwd)"));
  EXPECT_EQ(home.llorch({"pool", "nonsense", "--host=testhost"}).exit_code, 2);
  const ProgramOutcome both = home.llorch({"pool", "models", "list", "--host", "local,testhost"});
  EXPECT_EQ(both.exit_code, 0) << both.err << both.out;
  EXPECT_THAT(both.out, HasSubstr("testhost  "));
  EXPECT_THAT(both.out, HasSubstr("HOST      RESULT"));
  const json::Value all = home.json({"pool", "models", "list", "--host", "all"});
  ASSERT_EQ(all.at("hosts").as_array().size(), 2U) << json::serialize(all);
  for (const json::Value& host : all.at("hosts").as_array())
    EXPECT_TRUE(host.at("answer").as_object().contains("models")) << json::serialize(host);
  const ProgramOutcome plan = home.llorch({"plan", "builtin"});
  EXPECT_EQ(plan.exit_code, 0) << plan.err << plan.out;
  EXPECT_THAT(plan.out, HasSubstr("testhost"));

  // Measured and tried there, through the orchestrator.
  const json::Value bench = home.json({"bench", "--host", "local,testhost", "--streams", "1,2",
                                       "-n", "4", "-p", "8", "--repeat", "1"});
  ASSERT_EQ(bench.at("places").as_array().size(), 2U);
  for (const json::Value& place : bench.at("places").as_array())
    EXPECT_EQ(place.at("figures").as_array().size(), 4U) << json::serialize(place);
  const ProgramOutcome matrix =
      home.llorch({"matrix", "--quick", "--soak", "4", "--models", "builtin", "--backends", "cpu",
                   "--hosts", "testhost"});
  EXPECT_EQ(matrix.exit_code, 0) << matrix.out << matrix.err;
  EXPECT_THAT(matrix.err, HasSubstr("builtin on cpu of testhost: passed"));
  EXPECT_THAT(matrix.out, HasSubstr("checkpoints: the model's files are on another host"));

  // The connection is cut; it heals, and work goes on there.
  const auto masters = [&home] {
    std::vector<int> found;
    for (const int pid : home.processes()) {
      const std::ifstream in(fmt::format("/proc/{}/cmdline", pid));
      std::ostringstream text;
      text << in.rdbuf();
      if (text.str().find(std::string("ControlPersist=no")) != std::string::npos)
        found.push_back(pid);
    }
    return found;
  };
  ASSERT_THAT(masters(), Not(IsEmpty()));
  const std::vector<int> old = masters();
  for (const int pid : old) ::kill(pid, SIGKILL);
  EXPECT_TRUE(eventually([&] {
    const std::vector<int> now = masters();
    return !now.empty() && now != old;
  })) << "a new connection";
  EXPECT_TRUE(eventually([&home] {
    const json::Value list = home.json({"hosts"});
    for (const json::Value& host : list.at("hosts").as_array())
      if (host.at("name") == "testhost") return host.at("state") == "connected";
    return false;
  }));
  const json::Value more = home.json({"jobs", "submit", "-m", "builtin", "-p", "Once upon a time",
                                      "-n", "12", "--temp", "0", "--pin", "testhost"});
  EXPECT_EQ(more.at("text"), told.at("text"));

  const ProgramOutcome down = home.llorch({"down", "testhost"});
  EXPECT_EQ(down.exit_code, 0) << down.err;
  EXPECT_TRUE(eventually([&sshd] {
    return base::processes_with_variable("HOME=" + sshd->home().string()).empty();
  })) << "nothing stays there";
}

TEST(FleetUp, AHostWithSystemdForItsUserRunsThePoolAsAService) {
  const auto sshd = test::TestSshd::start();
  if (sshd == nullptr) GTEST_SKIP() << "no sshd";
  const test::TempDir programs;
  strip_programs(programs.path());
  const fs::path there = sshd->home();
  fs::create_directories(there / ".config" / "llorch");
  std::ofstream(there / ".config" / "llorch" / "config.toml") << "[pool]\nport = 0\n";
  write_fake_systemd(there);
  std::vector<std::string> environment = reaching(*sshd, programs.path());
  for (const char* name : {"CONFIG", "DATA", "STATE", "CACHE"})
    environment.push_back(fmt::format("XDG_{}_HOME=", name));
  const FleetHome home(std::move(environment));
  const fs::path unit = there / ".config/systemd/user/llorch-pool.service";

  // Where a service would end with the login, there is none.
  std::ofstream(there / "no-linger") << "";
  const ProgramOutcome refused = home.llorch({"up", "testhost"});
  ASSERT_EQ(refused.exit_code, 0) << refused.out << refused.err;
  EXPECT_FALSE(fs::exists(unit));
  EXPECT_THAT(content_of(there / "calls"), Not(HasSubstr("systemctl --user enable")));
  EXPECT_THAT(content_of(home.path() / "logs" / "orchestrator.log"),
              HasSubstr("enable-linger was refused"));
  ASSERT_EQ(home.llorch({"down", "testhost"}).exit_code, 0);

  fs::remove(there / "no-linger");
  const ProgramOutcome up = home.llorch({"up", "testhost"});
  ASSERT_EQ(up.exit_code, 0) << up.out << up.err;
  EXPECT_THAT(content_of(there / "calls"), HasSubstr("loginctl enable-linger"));
  EXPECT_THAT(content_of(there / "calls"),
              HasSubstr("systemctl --user enable llorch-pool.service"));
  EXPECT_THAT(content_of(unit), HasSubstr("current/pool-managerd"));
  const std::string pid = content_of(there / "service.pid");
  ASSERT_FALSE(pid.empty()) << "it was started by systemctl";
  EXPECT_THAT(content_of("/proc/" + pid.substr(0, pid.find('\n')) + "/cmdline"),
              HasSubstr("pool-managerd"));
  const json::Value told = home.json({"jobs", "submit", "-m", "builtin", "-p", "Once upon a time",
                                      "-n", "4", "--pin", "testhost"});
  EXPECT_EQ(told.at("status"), "completed");

  ASSERT_EQ(home.llorch({"down", "testhost"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(unit));
  EXPECT_THAT(content_of(there / "calls"),
              HasSubstr("systemctl --user disable --now llorch-pool.service"));
  EXPECT_TRUE(eventually([&there] {
    return base::processes_with_variable("HOME=" + there.string()).empty();
  })) << "nothing stays there";
}

}  // namespace
}  // namespace llorch
