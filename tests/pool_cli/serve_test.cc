// The manager as a process: where it listens, who may ask, how it starts and ends.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <thread>

#include "base/process_table.h"
#include "pool_cli/pool_home.h"
#include "support/notify_socket.h"

namespace llorch::test {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

class Serve : public ::testing::Test {
 protected:
  std::unique_ptr<ChildProcess> serve(std::vector<std::string> flags = {},
                                      std::vector<std::string> more_environment = {}) {
    std::vector<std::string> arguments = {"--port", "0", "--log-format", "json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    std::vector<std::string> environment = home_.environment();
    environment.insert(environment.begin(), more_environment.begin(), more_environment.end());
    return std::make_unique<ChildProcess>(POOL_MANAGERD, std::move(arguments),
                                          std::move(environment));
  }
  bool is_ready() {
    return eventually([this] { return !home_.url().empty(); });
  }

  PoolHome home_;
};

TEST_F(Serve, SaysWhereItListensAndEndsOnASignal) {
  const auto manager = serve();
  ASSERT_TRUE(is_ready()) << manager->err();
  EXPECT_TRUE(manager->wait_for_err("\"message\":\"ready\",\"url\":\"" + home_.url()))
      << manager->err();
  EXPECT_EQ(home_.status_of({http::Method::Get, home_.url() + "/health"}), 200);
  ASSERT_EQ(home_.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
  ASSERT_EQ(home_.workers().size(), 1U);
  manager->signal(SIGTERM);
  EXPECT_EQ(manager->wait(), 0) << manager->err();
  EXPECT_FALSE(std::filesystem::exists(home_.path() / "pool.json"));
  EXPECT_EQ(home_.workers().size(), 0U) << "stopped on purpose: its workers are stopped too";
}

TEST_F(Serve, IsTheSameAsLlorchPoolServe) {
  std::vector<std::string> arguments = {"serve", "--port", "0"};
  ChildProcess manager(LLORCH_POOL, arguments, home_.environment());
  ASSERT_TRUE(is_ready()) << manager.err();
  EXPECT_EQ(home_.pool({"health"}).exit_code, 0);
  manager.signal(SIGINT);
  EXPECT_EQ(manager.wait(), 0) << manager.err();
}

http::Response post(const std::string& url, const std::string& body) {
  http::ClientRequest request(http::Method::Post, url);
  request.headers.add("Content-Type", "application/json");
  request.body = body;
  const Result<http::Response> response = http::Client().send(request);
  return response.ok() ? *response : http::Response(0, "", response.error().message);
}

// Versions of the programs beside each other, as a host has them; those after the first are links
// to the same files.
std::filesystem::path install(const std::filesystem::path& folder, const std::string& version) {
  std::filesystem::create_directories(folder / version);
  for (const std::filesystem::path source : {POOL_MANAGERD, LLORCH_POOL, LLORCH_CPUD}) {
    const std::filesystem::path program = folder / version / source.filename();
    const std::filesystem::path first = folder / "1" / source.filename();
    if (program != first) {
      std::filesystem::create_hard_link(first, program);
    } else if (run_program("/usr/bin/strip", {"-o", program.string(), source.string()}).exit_code !=
               0) {
      std::filesystem::copy_file(source, program);
    }
  }
  return folder / version;
}

TEST_F(Serve, AnotherVersionIsReplacedAndItsWorkersGoOn) {
  const TempDir folder;
  const std::filesystem::path one = install(folder.path(), "1");
  const std::filesystem::path two = install(folder.path(), "2");
  const auto start = [this](const std::filesystem::path& version, bool replaces) {
    std::vector<std::string> words = {"start", "--json"};
    if (replaces) words.emplace_back("--replace");
    const ProgramOutcome done =
        run_program((version / "llorch-pool").string(), words, home_.environment());
    EXPECT_EQ(done.exit_code, 0) << done.err;
    const Result<json::Value> answer = json::parse(done.out);
    return answer.ok() && answer->at("replaced").as_bool();
  };
  const auto manager = [this] {
    const std::vector<int> managers = home_.managers();
    EXPECT_EQ(managers.size(), 1U);
    return managers.empty() ? 0 : managers[0];
  };
  EXPECT_FALSE(start(one, true)) << "none runs";
  const int first = manager();
  ASSERT_EQ(base::program_of(first), one / "pool-managerd");
  ASSERT_EQ(home_.pool({"worker", "spawn", "cpu", "--model", "builtin", "--ctx", "64"}).exit_code,
            0);
  const std::int64_t worker = home_.workers().at(0).pid;

  EXPECT_FALSE(start(one, true)) << "it is this version";
  EXPECT_FALSE(start(two, false)) << "it was not asked for";
  const std::filesystem::path elsewhere = std::filesystem::path(LLORCH_POOL).parent_path();
  EXPECT_FALSE(start(elsewhere, true)) << "it is not among these versions";
  EXPECT_EQ(manager(), first);

  EXPECT_TRUE(start(two, true));
  EXPECT_EQ(base::program_of(manager()), two / "pool-managerd");
  ASSERT_EQ(home_.workers().size(), 1U);
  EXPECT_EQ(home_.workers().at(0).pid, worker);
  EXPECT_EQ(home_.workers().at(0).state, contract::PoolWorkerState::Ready);

  // A file that took the place of the one that runs.
  const int second = manager();
  std::filesystem::copy_file(two / "pool-managerd", folder / "new");
  std::filesystem::rename(folder / "new", two / "pool-managerd");
  EXPECT_TRUE(start(two, true));
  EXPECT_NE(manager(), second);
  EXPECT_EQ(home_.workers().at(0).pid, worker);
}

TEST_F(Serve, AServiceManagerStartsTheNextVersionItself) {
  const TempDir folder;
  const std::filesystem::path one = install(folder.path(), "1");
  const std::filesystem::path two = install(folder.path(), "2");
  std::filesystem::create_symlink("1", folder / "current");
  // Restart=on-failure of such a one, and what it tells those that it starts.
  std::vector<std::string> environment = home_.environment();
  environment.push_back("NOTIFY_SOCKET=" + (home_.path() / "notify").string());
  environment.push_back("PROGRAM=" + (folder / "current" / "pool-managerd").string());
  const ChildProcess service("/bin/sh", {"-c", "until \"$PROGRAM\" --port 0; do :; done"},
                             std::move(environment));
  ASSERT_TRUE(is_ready()) << service.err();
  ASSERT_EQ(base::program_of(home_.managers().at(0)), one / "pool-managerd");
  std::filesystem::remove(folder / "current");
  std::filesystem::create_symlink("2", folder / "current");
  const ProgramOutcome done =
      run_program((two / "llorch-pool").string(), {"start", "--replace"}, home_.environment());
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("replaced, running at "));
  ASSERT_EQ(home_.managers().size(), 1U);
  EXPECT_EQ(base::program_of(home_.managers().at(0)), two / "pool-managerd");
  EXPECT_EQ(base::children_of(service.pid()), home_.managers()) << "it is the service's again";
}

TEST_F(Serve, PipesAndFilesThatAreNoModelsStopNobody) {
  const auto manager = serve();
  ASSERT_TRUE(is_ready()) << manager->err();
  const std::filesystem::path pipe = home_.path() / "pipe.gguf";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::ofstream(home_.path() / "secret") << "token-of-somebody";
  const auto add = [&](const std::string& id, const std::filesystem::path& path) {
    return post(home_.url() + "/v2/models",
                fmt::format(R"({{"id":"{}","path":"{}"}})", id, path.string()));
  };
  // More of them than there are threads to block.
  for (int i = 0; i < 6; ++i) {
    const http::Response refused = add(fmt::format("pipe-{}", i), pipe);
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("is a pipe"));
  }
  const http::Response text = add("text", home_.path() / "secret");
  EXPECT_EQ(text.status, 400) << text.body;
  EXPECT_THAT(text.body, ::testing::Not(HasSubstr("token-of")));
  EXPECT_EQ(post(home_.url() + "/v2/models/nobody-has-this/download", "{}").status, 404);
  for (const char* body : {R"({"backend":"cpu","model":"builtin","ctx":1})",
                           R"({"backend":"cpu","model":"builtin","ctx":99999})",
                           R"({"backend":"cuda","model":"builtin","gpu":77})"}) {
    const http::Response refused = post(home_.url() + "/v2/workers/start", body);
    EXPECT_EQ(refused.status, 400) << body << ": " << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("\"retriable\":false"));
  }
  for (const char* url : {"http://a b", "http://user@host", "host:1\\r\\nX: y", "host:99999"}) {
    const http::Response refused = post(home_.url() + "/v2/models/builtin/verify",
                                        fmt::format(R"({{"neighbours":[{{"url":"{}"}}]}})", url));
    EXPECT_EQ(refused.status, 400) << url << ": " << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("neighbours[0].url"));
  }
  EXPECT_EQ(post(home_.url() + "/v2/models/builtin/verify",
                 R"({"neighbours":[{"url":"host","token":"a\r\nX-Other: b"}]})")
                .status,
            400);
  EXPECT_EQ(home_.status_of({http::Method::Get, home_.url() + "/health"}), 200);
}

TEST_F(Serve, ItsOwnLogStartsAnewWhenItIsFull) {
  const std::filesystem::path log = home_.path() / "own.log";
  std::ofstream(log) << std::string(std::size_t{9} << 20, 'x') << "\n";
  const auto manager = serve({"--log-file", log.string()});
  ASSERT_TRUE(is_ready());
  EXPECT_LT(std::filesystem::file_size(log), 1U << 20);
  EXPECT_GT(std::filesystem::file_size(log.string() + ".1"), 8U << 20);
  for (const char* name : {"pool.json", "catalog.json", "own.log"}) {
    const auto mode = std::filesystem::status(home_.path() / name).permissions();
    EXPECT_EQ(static_cast<unsigned>(mode), 0600U) << name;
  }
}

TEST_F(Serve, OneManagerForAHome) {
  const auto first = serve();
  ASSERT_TRUE(is_ready()) << first->err();
  const auto second = serve();
  EXPECT_EQ(second->wait(), 1);
  EXPECT_THAT(second->err(), HasSubstr("pool-managerd: another pool manager runs"));
  EXPECT_EQ(home_.pool({"health"}).exit_code, 0) << "the first goes on";
}

TEST_F(Serve, ASecondSignalLeavesTheWorkersToTheirKeepers) {
  const auto manager = serve();
  ASSERT_TRUE(is_ready()) << manager->err();
  ASSERT_EQ(home_.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
  const std::vector<contract::PoolWorker> before = home_.workers();
  ASSERT_EQ(before.size(), 1U);
  // Something to drain: an answer that nobody has read to its end. The client reads nothing more
  // until the manager has gone.
  std::atomic<bool> manager_gone = false;
  std::atomic<bool> has_begun = false;
  std::thread client_thread([&] {
    http::Client client;
    http::ClientRequest request(http::Method::Post, before[0].uri + "/execute");
    request.headers.set("Content-Type", "application/json");
    request.body = R"({"job_id":"j","prompt":"Once upon a time","max_tokens":1000})";
    request.total_timeout = std::chrono::milliseconds(0);
    std::ignore = client.stream(request, [&](std::string_view) {
      has_begun = true;
      return !manager_gone;
    });
  });
  EXPECT_TRUE(eventually([&] { return has_begun.load(); }));
  manager->signal(SIGTERM);
  EXPECT_TRUE(manager->wait_for_err("workers still running"));
  manager->signal(SIGTERM);
  const std::optional<int> code = manager->wait();
  manager_gone = true;
  client_thread.join();
  // The answer may have ended between the two signals; then there was nothing to interrupt.
  if (code == 0) GTEST_SKIP() << "SKIPPED: the worker was faster than the second signal";
  EXPECT_EQ(code, 130) << manager->err();
  EXPECT_FALSE(std::filesystem::exists(home_.path() / "pool.json"));
}

// A port that somebody else has, for as long as it lives.
class TakenPort {
 public:
  TakenPort() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~TakenPort() { ::close(socket_); }
  int port() const { return port_; }

 private:
  int socket_;
  int port_ = 0;
};

// It insisted on its port once, so that a second user or home could have no manager.
TEST_F(Serve, OneThatACommandStartsTakesAnotherPort) {
  const TakenPort taken;
  std::ofstream(home_.path() / "config.toml")
      << fmt::format("[pool]\nport = {}\n[worker]\nthreads = 1\n", taken.port());
  const ProgramOutcome spawned = home_.pool({"worker", "spawn", "cpu", "--model", "builtin"});
  EXPECT_EQ(spawned.exit_code, 0) << spawned.err;
  EXPECT_THAT(home_.url(), ::testing::Not(HasSubstr(fmt::format(":{}", taken.port()))));
  EXPECT_EQ(home_.pool({"health"}).exit_code, 0);
}

TEST_F(Serve, LeavesWhenNothingUsesIt) {
  const auto manager = serve({"--idle-exit", "1"});
  ASSERT_TRUE(is_ready()) << manager->err();
  ASSERT_EQ(home_.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
  const std::vector<contract::PoolWorker> workers = home_.workers();
  ASSERT_EQ(workers.size(), 1U) << "a worker is use";
  ASSERT_EQ(home_.pool({"worker", "stop", workers[0].id}).exit_code, 0);
  EXPECT_EQ(manager->wait(), 0) << manager->err();
  EXPECT_THAT(manager->err(), HasSubstr("nothing used this manager"));
  EXPECT_EQ(home_.url(), "");
}

TEST_F(Serve, AnotherHomesManagerIsNotOurs) {
  const auto manager = serve();
  ASSERT_TRUE(is_ready()) << manager->err();
  PoolHome other;
  std::filesystem::copy_file(home_.path() / "pool.json", other.path() / "pool.json");
  std::ofstream(other.path() / "catalog.json")
      << R"({"version":"1.0","pool_id":"pool-of-another","models":[]})";
  EXPECT_EQ(other.pool({"health"}).exit_code, 1) << "its pool_id is not this home's";
  EXPECT_EQ(home_.pool({"health"}).exit_code, 0);
  std::filesystem::remove(other.path() / "pool.json");
}

// They acted on the files of their own home once, whatever --pool said.
TEST_F(Serve, EveryCommandMeansThePoolThatIsNamed) {
  const auto manager = serve();
  ASSERT_TRUE(is_ready()) << manager->err();
  PoolHome other;
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--pool", home_.url()});
    const ProgramOutcome outcome = other.pool(words);
    EXPECT_EQ(outcome.exit_code, 0) << words[0] << ": " << outcome.err;
    return outcome.out;
  };
  const std::string path = source_path("tests/golden/gpt2_tiny").string();
  EXPECT_THAT(run({"models", "register", "mine", "--path", path}), HasSubstr("registered mine"));
  EXPECT_THAT(run({"models", "list"}), HasSubstr("mine"));
  EXPECT_THAT(run({"models", "catalog"}), AllOf(HasSubstr("mine"), HasSubstr("tinyllama")));
  EXPECT_THAT(run({"models", "show", "mine"}), HasSubstr(path));
  EXPECT_THAT(run({"models", "verify", "mine"}), HasSubstr("hashed for the first time"));
  EXPECT_THAT(run({"models", "verify", "--json"}), HasSubstr(R"("whole":true)"));
  EXPECT_THAT(run({"models", "outdated"}), HasSubstr("not tracked"));
  EXPECT_THAT(run({"plan", "builtin"}), HasSubstr("fits"));
  EXPECT_THAT(run({"models", "update", "mine", "--name", "Another"}), HasSubstr("Another"));
  EXPECT_THAT(home_.pool({"models", "list"}).out, HasSubstr("Another")) << "and so does the own";
  EXPECT_FALSE(std::filesystem::exists(other.path() / "catalog.json"));
  EXPECT_THAT(run({"models", "rm", "mine"}), AllOf(HasSubstr("forgot mine"), HasSubstr(path)));
  EXPECT_THAT(home_.pool({"models", "list"}).out, ::testing::Not(HasSubstr("Another")));
  const ProgramOutcome unknown = other.pool({"models", "show", "mine", "--pool", home_.url()});
  EXPECT_EQ(unknown.exit_code, 1);
}

TEST_F(Serve, StoppingSaysHowManyAnswersItCut) {
  const auto manager = serve();
  ASSERT_TRUE(is_ready()) << manager->err();
  ASSERT_EQ(home_.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
  http::ClientRequest request(http::Method::Post, home_.workers().at(0).uri + "/v1/completions");
  // Without the end token each tells on until the context is full; four times as many answers as
  // run together, so that a fast processor has not ended them before the manager's next look.
  request.body =
      R"({"prompt":"Once","temperature":0,"stream":true,"n":5,"max_tokens":1000,"logit_bias":{"0":-100}})";
  std::array<std::string, 12> streams;
  std::vector<std::jthread> clients;
  for (std::string& stream : streams) {
    clients.emplace_back([&stream, &request] {
      [[maybe_unused]] const auto answer =
          http::Client().stream(request, [&stream](std::string_view bytes) {
            stream += bytes;
            return true;
          });
    });
  }
  ASSERT_TRUE(eventually([&] { return home_.workers().at(0).slots_busy == 16; }));
  const ProgramOutcome stopped =
      home_.pool({"worker", "stop", "worker-cpu-0", "--timeout", "0", "--json"});
  clients.clear();  // joins
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  const json::Value said = json::parse(stopped.out).take();
  int num_cut = 0;
  for (const std::string& stream : streams) {
    const bool is_whole = stream.find("data: [DONE]") != std::string::npos;
    EXPECT_NE(is_whole, stream.find("UNAVAILABLE") != std::string::npos) << stream.substr(0, 300);
    if (!is_whole) ++num_cut;
  }
  EXPECT_GE(num_cut, 1);
  EXPECT_GE(said.at("cut").as_int64(), num_cut) << "answers, of which each stream has five";
}

TEST_F(Serve, AStoppedWorkersLogStaysReachable) {
  const auto manager = serve();
  ASSERT_TRUE(is_ready()) << manager->err();
  ASSERT_EQ(home_.pool({"worker", "spawn", "cpu", "--model", "builtin"}).exit_code, 0);
  const ProgramOutcome stopped = home_.pool({"worker", "stop", "worker-cpu-0", "--json"});
  ASSERT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr(R"("cut":0)"));
  home_.pool({"worker", "stop", "worker-cpu-0"});  // a second time forgets it
  const ProgramOutcome log = home_.pool({"worker", "logs", "worker-cpu-0"});
  EXPECT_EQ(log.exit_code, 0) << log.err;
  EXPECT_THAT(log.out, HasSubstr("listening"));
  EXPECT_EQ(home_.pool({"worker", "logs", "worker-cpu-7"}).exit_code, 1);
  EXPECT_EQ(home_.pool({"worker", "logs", "../pool"}).exit_code, 1);
  manager->signal(SIGTERM);
  EXPECT_EQ(manager->wait(), 0);
  EXPECT_THAT(home_.pool({"worker", "logs", "worker-cpu-0"}).out, HasSubstr("listening"))
      << "without a manager too";
}

TEST_F(Serve, OtherAddressesNeedAToken) {
  const auto open = serve({"--host", "0.0.0.0"});
  EXPECT_EQ(open->wait(), 1);
  EXPECT_THAT(open->err(), HasSubstr("16"));
  EXPECT_FALSE(std::filesystem::exists(home_.path() / "tls")) << "no authority was made for it";
  std::ofstream(home_.path() / "short") << "secret\n";
  const auto too_short =
      serve({"--host", "0.0.0.0", "--api-token-file", (home_.path() / "short").string()});
  EXPECT_EQ(too_short->wait(), 1);
  EXPECT_THAT(too_short->err(), HasSubstr("--api-token-file"));

  const std::string token_file = (home_.path() / "token").string();
  std::ofstream(token_file) << "0123456789abcdef\n";
  const auto manager = serve({"--host", "0.0.0.0", "--api-token-file", token_file});
  ASSERT_TRUE(is_ready()) << manager->err();
  EXPECT_EQ(home_.status_of({http::Method::Get, home_.url() + "/health"}), 200);
  EXPECT_EQ(home_.status_of({http::Method::Get, home_.url() + "/v2/state"}), 401);
  const ProgramOutcome refused = home_.pool({"worker", "list"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("LLORCH_TOKEN"));
  // Workers have no token and report all the same.
  const ProgramOutcome spawned =
      home_.pool({"--token-file", token_file, "worker", "spawn", "cpu", "--model", "builtin"});
  EXPECT_EQ(spawned.exit_code, 0) << spawned.err;
  manager->signal(SIGTERM);
  EXPECT_EQ(manager->wait(), 0);
}

TEST_F(Serve, TellsItsServiceManager) {
  NotifySocket service(home_.path() / "notify");
  const auto manager = serve({}, {service.variable()});
  EXPECT_TRUE(service.hears("READY=1")) << service.heard();
  EXPECT_FALSE(home_.url().empty()) << "ready means that it can be found";
  manager->signal(SIGTERM);
  EXPECT_TRUE(service.hears("STOPPING=1")) << service.heard();
  EXPECT_EQ(manager->wait(), 0);
}

TEST_F(Serve, ATakenPortIsExplained) {
  const auto first = serve();
  ASSERT_TRUE(is_ready()) << first->err();
  const std::string port = home_.url().substr(home_.url().rfind(':') + 1);
  const PoolHome other;
  ChildProcess second(POOL_MANAGERD, {"--port", port}, other.environment());
  EXPECT_EQ(second.wait(), 1);
  EXPECT_THAT(second.err(), AllOf(HasSubstr("pool-managerd: "), HasSubstr(port)));
}

TEST_F(Serve, ADamagedCatalogIsNotTheEnd) {
  std::ofstream(home_.path() / "catalog.json") << "{";
  const auto manager = serve();
  ASSERT_TRUE(is_ready()) << manager->err();
  const ProgramOutcome health = home_.pool({"health"});
  EXPECT_EQ(health.exit_code, 1);
  EXPECT_THAT(health.err, HasSubstr("catalog.json"));
  std::filesystem::remove(home_.path() / "catalog.json");
  EXPECT_EQ(home_.pool({"health"}).exit_code, 0);
}

}  // namespace
}  // namespace llorch::test
