// The remote module against a real sshd on loopback.
#include "remote/ssh_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/digest.h"
#include "remote/install_plan.h"
#include "remote/preflight.h"
#include "support/child_process.h"
#include "support/eventually.h"
#include "support/test_sshd.h"

namespace llorch::remote {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre, ::testing::HasSubstr;

constexpr seconds kPatience{30};

// One host with its connection, or a skipped test.
class SshRun : public ::testing::Test {
 protected:
  void SetUp() override { start("/bin/sh"); }

  void start(const std::string& shell) {
    master_.reset();
    sshd_ = test::TestSshd::start(shell);
    if (!sshd_) GTEST_SKIP() << "no sshd";
    Result<SshHost> host = SshHost::make("testhost", run_.path());
    ASSERT_TRUE(host.ok()) << host.error().message;
    host_ = std::make_unique<SshHost>(host.take());
  }

  void connect() {
    SshMaster::Started started =
        SshMaster::start(sshd_->ssh(), *host_, FirstContact::Refuse, kPatience);
    ASSERT_TRUE(started.master) << started.failure.sentence << "\n" << sshd_->log();
    master_ = std::move(started.master);
  }

  SshFailure fail_to_connect() {
    SshMaster::Started started =
        SshMaster::start(sshd_->ssh(), *host_, FirstContact::Refuse, kPatience);
    EXPECT_FALSE(started.master);
    return started.failure;
  }

  void install_rexec() const {
    fs::create_directories(sshd_->home() / kInstallFolder / "current");
    fs::create_symlink(LLORCH_POOL, sshd_->home() / kInstallFolder / "current/llorch-pool");
  }

  SshOutcome run(SshWords words, const fs::path& input = {}) const {
    Result<SshOutcome> outcome = run_ssh(
        sshd_->ssh(), {.words = std::move(words), .patience = kPatience, .input_file = input});
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return outcome.ok() ? outcome.take() : SshOutcome{};
  }

  SshOutcome exec(const RemoteCommand& command, Terminal terminal = Terminal::No) const {
    Result<SshWords> words = exec_words(*host_, command, terminal);
    EXPECT_TRUE(words.ok()) << words.error().message;
    return run(words.take());
  }

  SshOutcome script(std::string_view text, const fs::path& input = {}) const {
    return run(script_words(*host_, text), input);
  }

  test::TempDir run_;  // sockets
  std::unique_ptr<test::TestSshd> sshd_;
  std::unique_ptr<SshHost> host_;
  std::unique_ptr<SshMaster> master_;
};

TEST_F(SshRun, OneConnectionCarriesCommandsWithTheirExitCodes) {
  connect();
  install_rexec();
  EXPECT_TRUE(run(check_words(*host_)).success());
  const SshOutcome said =
      exec({{"sh", "-c", "echo \"$WORD\"; echo bad >&2; exit 7"}, {"WORD=a  b"}});
  EXPECT_EQ(said.exit.code, 7);
  EXPECT_THAT(said.output, HasSubstr("a  b\n"));
  EXPECT_THAT(said.output, HasSubstr("bad\n"));
  EXPECT_EQ(exec({{"sh", "-c", "kill -TERM $$"}, {}}).success(), false);
  const SshOutcome absent = exec({{"no-such-program"}, {}});
  EXPECT_EQ(absent.exit.code, 1);
  EXPECT_THAT(absent.output, HasSubstr("no-such-program cannot be started"));
}

TEST_F(SshRun, ATerminalIsGivenWhereItIsAskedFor) {
  if (::geteuid() != 0) {
    std::fprintf(stderr, "SKIPPED: terminals: an sshd that is not root's cannot give them away\n");
    GTEST_SKIP() << "needs an sshd of root";
  }
  connect();
  install_rexec();
  const RemoteCommand command{{"sh", "-c", "if test -t 0; then echo a terminal; fi"}, {}};
  EXPECT_THAT(exec(command, Terminal::Yes).output, HasSubstr("a terminal"));
  EXPECT_EQ(exec(command, Terminal::No).output, "");
}

TEST_F(SshRun, NoShellEverReadsAnArgument) {
  const std::vector<std::string> hostile = {"; touch owned",
                                            "$(touch owned)",
                                            "`touch owned`",
                                            "| touch owned",
                                            "&& touch owned",
                                            "a\nb\ntouch owned",
                                            "  two  spaces  ",
                                            "",
                                            "-rf",
                                            "--help",
                                            "'single'",
                                            "\"double\"",
                                            "back\\slash",
                                            "!history !! !$",
                                            "*",
                                            "~",
                                            "{a,b}",
                                            "%s\\n",
                                            "#comment",
                                            "(subshell)",
                                            "naïve → 日本",
                                            "\ttab\r",
                                            "$HOME",
                                            "> owned",
                                            "\x01\x7f"};
  RemoteCommand command{{"printf", "%s\\0"}, {"LLORCH_TEST_WORD=$(touch owned); !! 'x'"}};
  std::string expected;
  for (const std::string& word : hostile) {
    command.words.push_back(word);
    expected += word + '\0';
  }
  int num_shells = 0;
  for (const char* shell :
       {"/bin/sh", "/bin/bash", "/usr/bin/fish", "/usr/bin/tcsh", "/usr/bin/zsh"}) {
    if (::access(shell, X_OK) != 0) {
      std::fprintf(stderr, "SKIPPED: %s as login shell: not installed (scripts/setup.sh test)\n",
                   shell);
      continue;
    }
    SCOPED_TRACE(shell);
    ASSERT_NO_FATAL_FAILURE(start(shell));
    ASSERT_NO_FATAL_FAILURE(connect());
    install_rexec();
    EXPECT_EQ(exec(command).output, expected);
    const SshOutcome value =
        exec({{"sh", "-c", "printf %s \"$LLORCH_TEST_WORD\""}, command.environment});
    EXPECT_EQ(value.output, "$(touch owned); !! 'x'");
    EXPECT_EQ(exec({{"printf", "%s", std::string(80'000, '$')}, {}}).output.size(), 80'000U);
    EXPECT_FALSE(fs::exists(sshd_->home() / "owned"));
    const Result<HostFacts> facts = parse_preflight(script(preflight_script()).output);
    ASSERT_TRUE(facts.ok()) << facts.error().message;
    EXPECT_EQ(facts->system, "Linux");
    EXPECT_TRUE(parse_listing(script(list_script()).output).ok());
    ++num_shells;
  }
  EXPECT_GE(num_shells, 1);
}

TEST_F(SshRun, PreflightFindsThisMachineGood) {
  connect();
  const SshOutcome answer = script(preflight_script());
  ASSERT_TRUE(answer.success()) << answer.output;
  const Result<HostFacts> facts = parse_preflight(answer.output);
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_EQ(facts->home, fs::canonical(sshd_->home()));
  EXPECT_GT(facts->free_bytes, 0);
  HostNeeds needs;
  needs.machines = {facts->machine};
  for (const Finding& finding : judge_host("testhost", *facts, needs))
    EXPECT_TRUE(finding.passed) << finding.sentence;
  EXPECT_FALSE(fs::exists(sshd_->home() / ".local")) << "asking leaves nothing behind";
}

// Answers one connection on a unix socket with one word.
class OneWordServer {
 public:
  explicit OneWordServer(const fs::path& path)
      : file_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = address_of(path);
    EXPECT_EQ(::bind(file_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(file_, 4), 0);
    thread_ = std::thread([this] {
      const int client = ::accept(file_, nullptr, nullptr);
      if (client < 0) return;
      EXPECT_EQ(::write(client, "hello", 5), 5);
      ::close(client);
    });
  }
  ~OneWordServer() {
    ::shutdown(file_, SHUT_RDWR);
    thread_.join();
    ::close(file_);
  }

  static sockaddr_un address_of(const fs::path& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    return address;
  }

 private:
  int file_;
  std::thread thread_;
};

std::string ask(const fs::path& socket) {
  const int file = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = OneWordServer::address_of(socket);
  std::string answer;
  if (::connect(file, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    std::array<char, 16> buffer{};
    for (ssize_t got = 0; (got = ::read(file, buffer.data(), buffer.size())) > 0;)
      answer.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(file);
  return answer;
}

TEST_F(SshRun, TheTunnelIsASocketThatOnlyItsOwnerMayUse) {
  connect();
  const OneWordServer server(sshd_->home() / "pool.sock");
  const Result<SshWords> words = forward_words(*host_, (sshd_->home() / "pool.sock").string());
  ASSERT_TRUE(words.ok());
  const SshOutcome made = run(*words);
  ASSERT_TRUE(made.success()) << made.output;
  EXPECT_EQ(fs::status(host_->tunnel_socket()).permissions(), fs::perms(0600));
  EXPECT_EQ(ask(host_->tunnel_socket()), "hello");
  const Result<SshWords> cancel =
      cancel_forward_words(*host_, (sshd_->home() / "pool.sock").string());
  EXPECT_TRUE(run(*cancel).success());
  EXPECT_EQ(ask(host_->tunnel_socket()), "");
}

TEST_F(SshRun, WithoutItsMasterNothingConnects) {
  connect();
  EXPECT_TRUE(run(exit_words(*host_)).success());
  EXPECT_TRUE(master_->has_ended(kPatience));
  EXPECT_FALSE(run(check_words(*host_)).success());
  const SshOutcome refused = script("echo reached");
  EXPECT_EQ(refused.exit.code, 255);
  EXPECT_EQ(refused.output.find("reached"), std::string::npos);
}

TEST_F(SshRun, AServerThatEndsEndsTheConnectionAndASocketLeftBehindDoesNotMatter) {
  connect();
  master_.reset();
  std::ofstream(host_->control_socket()) << "left behind";
  connect();
  EXPECT_FALSE(master_->is_adopted());
  const SshMaster::Started other =
      SshMaster::start(sshd_->ssh(), *host_, FirstContact::Refuse, kPatience);
  ASSERT_TRUE(other.master);
  EXPECT_TRUE(other.master->is_adopted());
  EXPECT_FALSE(other.master->has_ended());
  // The connection's own server process, not only the one that listens.
  EXPECT_FALSE(
      script("kill -KILL $(cat /proc/$PPID/status | grep ^PPid: | cut -f 2) $PPID").success());
  EXPECT_TRUE(master_->has_ended(kPatience));
  EXPECT_TRUE(other.master->has_ended());
}

TEST_F(SshRun, SaysWhyItCannotConnect) {
  sshd_->know_host_key(false);
  EXPECT_EQ(fail_to_connect().kind, SshFailureKind::HostKeyUnknown);
  sshd_->know_host_key(true);
  sshd_->allow_login(false);
  const SshFailure locked = fail_to_connect();
  EXPECT_EQ(locked.kind, SshFailureKind::LoginRefused) << locked.sentence;
  EXPECT_TRUE(locked.needs_a_person);
  sshd_->stop();
  const SshFailure off = fail_to_connect();
  EXPECT_EQ(off.kind, SshFailureKind::Unreachable) << off.sentence;
  EXPECT_THAT(off.sentence, HasSubstr("Connection refused"));
}

TEST_F(SshRun, FirstContactIsAcceptedOnlyWhenAsked) {
  sshd_->know_host_key(false);
  SshMaster::Started started =
      SshMaster::start(sshd_->ssh(), *host_, FirstContact::AcceptNew, kPatience);
  ASSERT_TRUE(started.master) << started.failure.sentence;
  started.master.reset();
  connect();  // and is known from then on
}

class InstallOverSsh : public SshRun {
 protected:
  ProgramFile program(const std::string& name, const std::string& content) {
    const fs::path file = files_ / (base::sha256_hex(content) + ".bin");
    std::ofstream(file) << content;
    return {name, base::sha256_hex(content), static_cast<std::int64_t>(content.size()), file};
  }

  Installed listing() {
    const SshOutcome outcome = script(list_script());
    Result<Installed> there = parse_listing(outcome.output);
    EXPECT_TRUE(there.ok()) << there.error().message;
    return there.take();
  }

  // As `llorch up` does it; the number of files that were sent.
  std::size_t install(const Manifest& manifest) {
    const InstallPlan plan = plan_install(manifest, listing());
    for (const ProgramFile& file : plan.to_send) {
      const SshOutcome sent = script(receive_script(file), file.source);
      const Status received = check_received(file, sent.output);
      EXPECT_TRUE(received.ok()) << received.error().message;
    }
    if (!plan.assemble_script.empty()) {
      const Status whole = check_assembled(manifest, script(plan.assemble_script).output);
      EXPECT_TRUE(whole.ok()) << whole.error().message;
    }
    if (!plan.switch_script.empty()) {
      EXPECT_TRUE(script(plan.switch_script).success());
    }
    EXPECT_TRUE(script(plan.clean_script).success());
    return plan.to_send.size();
  }

  std::string current(const std::string& name) const {
    std::ifstream in(sshd_->home() / kInstallFolder / "current" / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  test::TempDir files_;
};

TEST_F(InstallOverSsh, SendsWhatIsMissingSwitchesAndGoesBack) {
  connect();
  const Manifest first =
      make_manifest({program("llorch-pool", "#!/bin/sh\necho one\n"), program("same", "same")})
          .take();
  EXPECT_EQ(install(first), 2U);
  EXPECT_EQ(current("llorch-pool"), "#!/bin/sh\necho one\n");
  EXPECT_EQ(script("exec .local/lib/llorch/current/llorch-pool").output, "one\n");
  EXPECT_EQ(install(first), 0U);

  const Manifest second =
      make_manifest({program("llorch-pool", std::string(300'000, 'x')), program("same", "same")})
          .take();
  EXPECT_EQ(install(second), 1U);
  EXPECT_EQ(current("llorch-pool").size(), 300'000U);
  EXPECT_EQ(listing().previous, first.version);

  const Manifest third =
      make_manifest({program("llorch-pool", "three"), program("same", "same")}).take();
  EXPECT_EQ(install(third), 1U);
  const Installed there = listing();
  EXPECT_EQ(there.current, third.version);
  EXPECT_EQ(there.previous, second.version);
  EXPECT_EQ(there.versions.size(), 2U) << "two are kept";

  const Result<std::string> back = roll_back_script(there);
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(script(*back).success());
  EXPECT_EQ(current("llorch-pool").size(), 300'000U);
  EXPECT_EQ(listing().previous, third.version);
}

TEST_F(InstallOverSsh, AVersionThatRunsStays) {
  connect();
  const auto version = [this](const std::string& content) {
    return make_manifest({program("pool-managerd", content)}).take();
  };
  const std::string sleep = [] {
    std::ifstream in("/bin/sleep", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  const Manifest first = version(sleep);
  install(first);
  const fs::path folder = sshd_->home() / kInstallFolder;
  test::ChildProcess runs((folder / first.version / "pool-managerd").string(), {"600"});
  ASSERT_TRUE(test::eventually([&] { return !listing().running.empty(); }));
  install(version("two"));
  install(version("three"));
  install(version("four"));
  Installed there = listing();
  EXPECT_THAT(there.running, ElementsAre(first.version + "/pool-managerd"));
  EXPECT_EQ(there.versions.size(), 3U) << "the new one, the one before, the one that runs";
  EXPECT_TRUE(fs::exists(folder / first.version));
  runs.signal(SIGKILL);
  runs.wait();
  install(version("five"));
  EXPECT_EQ(listing().versions.size(), 2U);
}

TEST_F(InstallOverSsh, NothingDamagedIsEverUsed) {
  connect();
  const Manifest manifest =
      make_manifest({program("a", "content of a"), program("b", "content of b")}).take();
  install(manifest);
  // A file that was cut, and one that arrived in half under the right name.
  std::ofstream(sshd_->home() / kInstallFolder / manifest.version / "a") << "cut";
  fs::create_directories(sshd_->home() / kInstallFolder / "in");
  std::ofstream(sshd_->home() / kInstallFolder / "in" / manifest.files[0].sha256) << "content";
  EXPECT_EQ(install(manifest), 1U);
  EXPECT_EQ(current("a"), "content of a");
  const ProgramFile half{"c", base::sha256_hex("whole"), 5, program("c", "half").source};
  EXPECT_FALSE(check_received(half, script(receive_script(half), half.source).output).ok());
}

TEST(SshProgram, IsFoundOnThePathOrItsAbsenceIsTold) {
  EXPECT_TRUE(
      find_ssh([](const char*) { return "/absent"; }).error().message.find("openssh-client") !=
      std::string::npos);
}

TEST(SshProgram, ACallThatDoesNotEndIsEnded) {
  const Result<SshOutcome> outcome =
      run_ssh("/bin/sleep", {.words = {"60"}, .patience = milliseconds(50), .input_file = {}});
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::DeadlineExceeded);
}

}  // namespace
}  // namespace llorch::remote
