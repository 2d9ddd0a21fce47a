// The commands of llorch-pool, and llorch run --pool.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "pool_cli/pool_home.h"

namespace llorch::test {
namespace {

using contract::PoolWorkerState;
using ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::StartsWith;

TEST(PoolCli, LookingNeedsNoManager) {
  const PoolHome home;
  const ProgramOutcome status = home.pool({"status"});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  EXPECT_THAT(status.out, AllOf(HasSubstr("no manager is running"), HasSubstr("memory"),
                                HasSubstr("builtin"), HasSubstr("no workers")));
  const json::Value state = home.pool_json({"status"});
  EXPECT_TRUE(state.at("manager").is_null());
  EXPECT_TRUE(contract::parse_host_info(state.at("host")).ok());
  EXPECT_THAT(home.workers(), ElementsAre());
  const ProgramOutcome health = home.pool({"health"});
  EXPECT_EQ(health.exit_code, 1);
  EXPECT_THAT(health.err, StartsWith("llorch-pool: no pool manager is running"));
  EXPECT_EQ(home.pool_json({"health"}).at("status"), "down");
  EXPECT_EQ(home.pool({"stop"}).exit_code, 0);
  EXPECT_EQ(home.pool({"worker", "stop", "--all"}).exit_code, 0);
  const ProgramOutcome logs = home.pool({"worker", "logs", "none"});
  EXPECT_EQ(logs.exit_code, 1);
  EXPECT_THAT(logs.err, HasSubstr("\"none\""));
  EXPECT_EQ(home.managers().size(), 0U) << "none of these starts one";
}

TEST(PoolCli, MistakesAreUsageErrors) {
  const PoolHome home;
  const std::vector<std::vector<std::string>> mistakes = {
      {},
      {"worker"},
      {"worker", "spawn", "cpu"},
      {"worker", "spawn", "tpu", "--model", "builtin"},
      {"worker", "spawn", "cpu", "--model", "builtin", "--gpu", "0"},
      {"worker", "spawn", "cpu", "--model", "builtin", "--ctx", "0"},
      {"worker", "stop"},
      {"worker", "stop", "a", "--all"},
      {"worker", "logs", "a", "-n", "many"},
      {"status", "--interval", "0"},
      {"serve", "--surprise"},
      {"surprise"},
  };
  for (const std::vector<std::string>& mistake : mistakes) {
    const ProgramOutcome outcome = home.pool(mistake);
    EXPECT_EQ(outcome.exit_code, 2) << testing::PrintToString(mistake) << outcome.err;
    EXPECT_NE(outcome.err, "");
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(home.managers().size(), 0U);
}

TEST(PoolCli, HelpShowsExamples) {
  const PoolHome home;
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{},
                                             {"worker", "spawn"},
                                             {"worker", "list"},
                                             {"worker", "stop"},
                                             {"worker", "logs"},
                                             {"status"},
                                             {"health"},
                                             {"serve"},
                                             {"stop"}}) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const ProgramOutcome outcome = home.pool(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << testing::PrintToString(command) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("Examples:")) << testing::PrintToString(command);
  }
}

TEST(PoolCli, AWorkerFromSpawnToStop) {
  const PoolHome home;
  const ProgramOutcome spawned =
      home.pool({"worker", "spawn", "cpu", "--model", "builtin", "--ctx", "512", "--slots", "2"});
  ASSERT_EQ(spawned.exit_code, 0) << spawned.err;
  EXPECT_THAT(spawned.out, AllOf(StartsWith("worker-cpu-0 ready at http://127.0.0.1:"),
                                 HasSubstr("context 512"), HasSubstr("2 slots")));
  EXPECT_EQ(home.managers().size(), 1U);
  const std::vector<contract::PoolWorker> workers = home.workers();
  ASSERT_EQ(workers.size(), 1U);
  EXPECT_EQ(workers[0].state, PoolWorkerState::Ready);
  EXPECT_THAT(home.pool({"worker", "list"}).out,
              AllOf(HasSubstr("TOK/S"), HasSubstr("worker-cpu-0"), HasSubstr("0/2")));
  EXPECT_EQ(home.pool({"health"}).exit_code, 0);
  EXPECT_THAT(home.pool({"status"}).out, HasSubstr("at " + home.url()));

  // The worker is used, not started again, and it stays.
  const ProgramOutcome told =
      home.llorch({"run", "--pool", "-n", "5", "--temp", "0", "Once upon a time"});
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_NE(told.out, "");
  EXPECT_EQ(home.workers().size(), 1U);

  const ProgramOutcome logs = home.pool({"worker", "logs", "worker-cpu-0", "-n", "2"});
  EXPECT_EQ(logs.exit_code, 0) << logs.err;
  EXPECT_THAT(logs.out, HasSubstr("job done"));
  EXPECT_EQ(std::count(logs.out.begin(), logs.out.end(), '\n'), 2);
  // The keeper's own lines are no JSON in the file.
  std::istringstream lines(home.pool({"--json", "worker", "logs", "worker-cpu-0"}).out);
  for (std::string line; std::getline(lines, line);) EXPECT_TRUE(json::parse(line).ok()) << line;
  // Following ends with the worker.
  ChildProcess follower(LLORCH_POOL, {"worker", "logs", "worker-cpu-0", "-f"}, home.environment());

  const ProgramOutcome restarted = home.pool({"worker", "restart", "worker-cpu-0"});
  EXPECT_EQ(restarted.exit_code, 0) << restarted.err;
  const std::vector<contract::PoolWorker> again = home.workers();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_NE(again[0].pid, workers[0].pid);
  EXPECT_EQ(again[0].context, 512);

  const ProgramOutcome stopped = home.pool({"worker", "stop", "worker-cpu-0"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(stopped.out, "worker-cpu-0 stopped\n");
  EXPECT_EQ(follower.wait(), 0) << follower.err();
  // One that has ended is shown until it is stopped again: then it is forgotten.
  ASSERT_EQ(home.workers().size(), 1U);
  EXPECT_EQ(home.workers()[0].state, PoolWorkerState::Stopped);
  EXPECT_EQ(home.pool({"worker", "stop", "worker-cpu-0"}).exit_code, 0);
  EXPECT_EQ(home.workers().size(), 0U);
  EXPECT_EQ(home.pool({"worker", "stop", "worker-cpu-0"}).exit_code, 1);
}

// The built-in model has no template of its own.
TEST(PoolCli, AWorkerWithAnotherChatTemplate) {
  const PoolHome home;
  const std::filesystem::path file = home.path() / "plain.jinja";
  std::ofstream(file) << "{{ messages[0].content }}";
  const auto spawn = [&home](const std::string& chosen) {
    return home.pool(
        {"worker", "spawn", "cpu", "--model", "builtin", "--ctx", "64", "--chat-template", chosen});
  };
  for (const std::string& chosen : {std::string("chatml"), file.string()}) {
    const ProgramOutcome spawned = spawn(chosen);
    ASSERT_EQ(spawned.exit_code, 0) << spawned.err;
  }
  for (const contract::PoolWorker& worker : home.workers()) {
    http::ClientRequest request(http::Method::Post, worker.uri + "/v1/chat/completions");
    request.body = R"({"messages":[{"role":"user","content":"Once"}],"max_tokens":1})";
    EXPECT_EQ(home.status_of(request), 200) << worker.id;
  }
  // Beyond a restart of the worker, as its other flags.
  const ProgramOutcome restarted = home.pool({"worker", "restart", "worker-cpu-1"});
  EXPECT_EQ(restarted.exit_code, 0) << restarted.err;
  EXPECT_THAT(spawn(file.string() + ".gone").err, HasSubstr("is not a file of this host"));
  EXPECT_THAT(spawn("chatnl").err, HasSubstr("chatml"));
}

TEST(PoolCli, RunStartsAWorkerWhereThereIsNone) {
  const PoolHome home;
  const ProgramOutcome told =
      home.llorch({"run", "--pool", "--json", "-n", "3", "--seed", "1", "Once upon a time"});
  ASSERT_EQ(told.exit_code, 0) << told.err;
  const Result<json::Value> answer = json::parse(told.out);
  ASSERT_TRUE(answer.ok()) << told.out;
  EXPECT_EQ(answer->at("tokens_out"), 3);
  EXPECT_EQ(home.workers().size(), 1U);
  // The same text as from a worker of its own.
  const ProgramOutcome own =
      home.llorch({"run", "--json", "-n", "3", "--seed", "1", "Once upon a time"});
  EXPECT_EQ(json::parse(own.out).value().at("text"), answer->at("text"));
  const ProgramOutcome unknown = home.llorch({"run", "--pool", "-m", "none", "x"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, AllOf(StartsWith("llorch: "), HasSubstr("none")));
  const ProgramOutcome elsewhere = home.llorch({"run", "--pool", "http://192.0.2.1:1/x y", "x"});
  EXPECT_EQ(elsewhere.exit_code, 1);
}

TEST(PoolCli, TwoAtOnceStartOneManager) {
  const PoolHome home;
  std::vector<ProgramOutcome> outcomes(3);
  std::vector<std::thread> threads;
  for (ProgramOutcome& outcome : outcomes) {
    threads.emplace_back([&home, &outcome] {
      outcome = home.pool({"worker", "spawn", "cpu", "--model", "builtin", "--ctx", "64"});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ProgramOutcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(home.managers().size(), 1U);
  EXPECT_EQ(home.workers().size(), 3U);
  const ProgramOutcome stopped = home.pool({"worker", "stop", "--all"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  for (const contract::PoolWorker& worker : home.workers())
    EXPECT_EQ(worker.state, PoolWorkerState::Stopped) << worker.id;
}

TEST(PoolCli, RefusalsSayWhy) {
  const PoolHome home;
  const ProgramOutcome unknown = home.pool({"worker", "spawn", "cpu", "--model", "biultin"});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, AllOf(StartsWith("llorch-pool: "), HasSubstr("builtin")));
  const ProgramOutcome too_much =
      home.pool({"worker", "spawn", "cpu", "--model", "builtin", "--ctx", "1000000"});
  EXPECT_EQ(too_much.exit_code, 1);
  EXPECT_THAT(too_much.err, HasSubstr("1024"));
  // A GPU that is not there is an error, never a run on the CPU.
  const ProgramOutcome gpu =
      home.pool({"worker", "spawn", "cuda", "--model", "builtin", "--gpu", "200"});
  EXPECT_EQ(gpu.exit_code, 1);
  EXPECT_NE(gpu.err, "");
  EXPECT_THAT(home.workers(), ElementsAre());
}

// A program in the place of the worker that plans like it and then fails.
TEST(PoolCli, AWorkerThatFailsShowsItsLastWords) {
  const PoolHome home;
  const std::filesystem::path program = home.path() / "worker.sh";
  std::ofstream(program) << "#!/bin/sh\ncase \"$*\" in *--plan-memory*) exec " << LLORCH_CPUD
                         << " \"$@\";; esac\necho 'out of ideas' >&2\nexit 3\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  std::ofstream(home.path() / "config.toml")
      << "[pool]\nport = 0\nconfine-workers = false\nworker-cpu = \"" << program.string() << "\"\n";
  const ProgramOutcome spawned = home.pool({"worker", "spawn", "cpu", "--model", "builtin"});
  EXPECT_EQ(spawned.exit_code, 1);
  EXPECT_EQ(spawned.out, "");
  EXPECT_THAT(spawned.err, AllOf(StartsWith("llorch-pool: worker-cpu-0 failed (start_failed)"),
                                 HasSubstr("\n    "), HasSubstr("out of ideas")));
  ASSERT_EQ(home.workers().size(), 1U);
  EXPECT_THAT(home.pool({"worker", "list"}).out, HasSubstr("failed: start_failed"));
  EXPECT_THAT(home.pool({"worker", "logs", "worker-cpu-0"}).out, HasSubstr("out of ideas"));
  EXPECT_EQ(home.pool({"worker", "stop", "worker-cpu-0"}).exit_code, 0);
}

TEST(PoolCli, AKilledManagerLosesNothing) {
  const PoolHome home;
  ASSERT_EQ(home.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
  const std::vector<contract::PoolWorker> before = home.workers();
  ASSERT_EQ(before.size(), 1U);
  ASSERT_EQ(home.managers().size(), 1U);
  ::kill(home.managers()[0], SIGKILL);
  ASSERT_TRUE(eventually([&] { return home.managers().empty(); }));
  // Without a manager the records answer.
  const std::vector<contract::PoolWorker> orphaned = home.workers();
  ASSERT_EQ(orphaned.size(), 1U);
  EXPECT_EQ(orphaned[0].pid, before[0].pid);
  EXPECT_THAT(home.pool({"worker", "logs", "worker-cpu-0"}).out, HasSubstr("ready"));
  EXPECT_THAT(home.pool({"status"}).out, HasSubstr("no manager is running"));
  // The next one adopts it: the same process answers.
  const ProgramOutcome told = home.llorch({"run", "--pool", "-n", "3", "Once upon a time"});
  EXPECT_EQ(told.exit_code, 0) << told.err;
  const std::vector<contract::PoolWorker> adopted = home.workers();
  ASSERT_EQ(adopted.size(), 1U);
  EXPECT_EQ(adopted[0].pid, before[0].pid);
}

TEST(PoolCli, StoppingWithoutAManagerAdoptsFirst) {
  const PoolHome home;
  ASSERT_EQ(home.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
  ASSERT_EQ(home.managers().size(), 1U);
  ::kill(home.managers()[0], SIGKILL);
  ASSERT_TRUE(eventually([&] { return home.managers().empty(); }));
  const ProgramOutcome stopped = home.pool({"worker", "stop", "--all"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_EQ(stopped.out, "worker-cpu-0 stopped\n");
}

TEST(PoolCli, APoolElsewhereIsNeverStarted) {
  const PoolHome home;
  const ProgramOutcome outcome =
      home.pool({"--pool", "http://192.0.2.1:9", "worker", "spawn", "cpu", "--model", "builtin"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("http://192.0.2.1:9"));
  EXPECT_EQ(home.pool({"--pool", "nonsense", "worker", "list"}).exit_code, 2) << "no address";
  EXPECT_EQ(home.managers().size(), 0U);
}

}  // namespace
}  // namespace llorch::test
