#include "base/confinement.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>

#include "base/process.h"
#include "support/listener.h"
#include "support/test_paths.h"

namespace llorch::base {
namespace {

using ::llorch::test::connect_to;
using ::llorch::test::Listener;
using ::testing::HasSubstr;

std::shared_ptr<const Confinement> prepare(const ConfinementRules& rules) {
  Result<std::shared_ptr<const Confinement>> made = Confinement::prepare(rules);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return made.take();
}

// The errno of `attempt` (0: it worked) in a process of its own that is confined; -1: could not be.
int confined(const Confinement& confinement, const std::function<bool()>& attempt) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!confinement.enter()) ::_exit(255);
    ::_exit(attempt() ? 0 : errno);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) != 255 ? WEXITSTATUS(status) : -1;
}

bool can_open(const std::filesystem::path& path, int flags) {
  return ::open(path.c_str(), flags, 0600) >= 0;
}

class ConfinementTest : public ::testing::Test {
 protected:
  ConfinementTest() {
    std::filesystem::create_directory(folder_ / "listed");
    std::filesystem::create_directory(folder_ / "scratch");
    std::ofstream(folder_ / "listed/file") << "listed";
    std::ofstream(folder_ / "secret") << "not listed";
    std::filesystem::create_symlink(folder_ / "secret", folder_ / "listed/link");
  }
  void SetUp() override {
    if (!prepare({})->limits_files()) GTEST_SKIP() << "this kernel has no landlock";
  }
  test::TempDir folder_;
};

TEST_F(ConfinementTest, WhatIsNotListedCannotBeOpened) {
  const auto rules = prepare({.readable = {folder_ / "listed", folder_ / "absent"}});
  EXPECT_EQ(confined(*rules, [&] { return can_open(folder_ / "listed/file", O_RDONLY); }), 0);
  EXPECT_EQ(confined(*rules, [&] { return can_open(folder_ / "secret", O_RDONLY); }), EACCES);
  EXPECT_EQ(confined(*rules, [&] { return can_open(folder_ / "listed/link", O_RDONLY); }), EACCES)
      << "a link leads nowhere else";
}

TEST_F(ConfinementTest, OnlyWritableFoldersTakeFiles) {
  const auto rules = prepare({.readable = {folder_ / "listed"}, .writable = {folder_ / "scratch"}});
  EXPECT_EQ(confined(*rules, [&] { return can_open(folder_ / "listed/file", O_WRONLY); }), EACCES);
  EXPECT_EQ(confined(*rules, [&] { return can_open(folder_ / "listed/new", O_WRONLY | O_CREAT); }),
            EACCES);
  EXPECT_EQ(confined(*rules, [&] { return ::unlink((folder_ / "listed/file").c_str()) == 0; }),
            EACCES);
  EXPECT_EQ(confined(*rules, [&] { return ::truncate((folder_ / "listed/file").c_str(), 0) == 0; }),
            EACCES);
  EXPECT_EQ(confined(*rules, [&] { return can_open(folder_ / "scratch/new", O_RDWR | O_CREAT); }),
            0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "scratch/new"));
}

TEST_F(ConfinementTest, ReadableIsNotExecutable) {
  const auto run = [](const ConfinementRules& rules) {
    ProcessOptions options;
    options.program = "/bin/sh";
    options.arguments = {"-c", "exit 7"};
    options.confinement = prepare(rules);
    Result<std::unique_ptr<Process>> process = Process::spawn(options);
    return process.ok() ? (*process)->wait_for(std::chrono::seconds(10))->code : -1;
  };
  EXPECT_EQ(run({.readable = {"/usr", "/lib", "/lib64", "/bin", "/etc"}}), -1);
  EXPECT_EQ(run({.readable = {"/etc"}, .executable = {"/usr", "/lib", "/lib64", "/bin"}}), 7);
}

TEST_F(ConfinementTest, OnlyListedPortsAreReached) {
  const Listener allowed;
  const Listener other;
  const std::uint16_t own = Listener().port();
  const auto rules = prepare({.network = NetworkRules{.bind = {own}, .connect = {allowed.port()}}});
  if (!rules->limits_ports()) GTEST_SKIP() << "this kernel has no rules for ports";
  EXPECT_THAT(rules->describe(), HasSubstr("files and ports by landlock"));
  EXPECT_EQ(confined(*rules, [&] { return connect_to(allowed.port()) >= 0; }), 0);
  EXPECT_EQ(confined(*rules, [&] { return connect_to(other.port()) >= 0; }), EACCES);
  EXPECT_EQ(confined(*rules, [&] { return Listener(own).is_listening(); }), 0);
  EXPECT_NE(confined(*rules, [&] { return Listener().is_listening(); }), 0);
}

TEST_F(ConfinementTest, OtherSocketsAreNotMade) {
  const auto can_make = [](const NetworkRules& network, int family, int type, int protocol) {
    return confined(*prepare({.network = network}),
                    [&] { return ::socket(family, type, protocol) >= 0; });
  };
  const NetworkRules tcp{.bind = {1}, .connect = {}};
  EXPECT_EQ(can_make(tcp, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), 0);
  EXPECT_EQ(can_make(tcp, AF_INET6, SOCK_STREAM, IPPROTO_TCP), 0);
  EXPECT_EQ(can_make(tcp, AF_INET, SOCK_STREAM, 262), EACCES) << "multipath TCP has no rules";
  EXPECT_EQ(can_make(tcp, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), EACCES);
  EXPECT_EQ(can_make(tcp, AF_INET6, SOCK_DGRAM, 0), EACCES);
  EXPECT_EQ(can_make(tcp, AF_NETLINK, SOCK_RAW, 0), EACCES);
  EXPECT_EQ(can_make(tcp, AF_UNIX, SOCK_STREAM, 0), EACCES);
  EXPECT_EQ(can_make({.local_sockets = true}, AF_UNIX, SOCK_STREAM, 0), 0);
  EXPECT_EQ(can_make({}, AF_INET, SOCK_STREAM, 0), EACCES) << "without ports there is no network";
}

TEST_F(ConfinementTest, AProgramRunsAndNothingElseDoes) {
  ConfinementRules rules = rules_to_run("/bin/true", "");
  const auto run = [&rules](const char* program, std::vector<std::string> arguments) {
    ProcessOptions options;
    options.program = program;
    options.arguments = std::move(arguments);
    options.confinement = prepare(rules);
    Result<std::unique_ptr<Process>> process = Process::spawn(options);
    return process.ok() ? (*process)->wait_for(std::chrono::seconds(10))->code : -1;
  };
  EXPECT_EQ(run("/bin/true", {}), 0);
  EXPECT_EQ(run("/bin/sh", {"-c", "exit 0"}), -1);
  rules.executable.emplace_back("/bin/cat");
  EXPECT_EQ(run("/bin/cat", {"/etc/ld.so.cache"}), 0);
  EXPECT_NE(run("/bin/cat", {"/etc/passwd"}), 0);
  EXPECT_NE(run("/lib64/ld-linux-x86-64.so.2", {"/bin/sh", "-c", "exit 0"}), 0)
      << "the loader runs what can be read";
}

TEST_F(ConfinementTest, ReachesNoOtherProcess) {
  const auto rules = prepare({});
  ASSERT_TRUE(rules->limits_calls());
  EXPECT_THAT(rules->describe(), HasSubstr("system calls by seccomp"));
  EXPECT_EQ(confined(*rules, [] { return ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0; }),
            EPERM);
  EXPECT_EQ(confined(*rules, [] { return ::unshare(CLONE_NEWUSER) == 0; }), EPERM);
  EXPECT_EQ(confined(*rules, [] { return ::getppid() > 0; }), 0) << "ordinary calls work";
  int abi = 0;
  ASSERT_EQ(std::sscanf(rules->describe().c_str(), "files by landlock (ABI %d)", &abi), 1);
  const pid_t us = ::getpid();
  const std::string environment = "/proc/" + std::to_string(us) + "/environ";
  EXPECT_EQ(confined(*rules, [&] { return can_open(environment, O_RDONLY); }), EACCES)
      << "the keys of others are in their environment";
  EXPECT_EQ(confined(*rules, [] { return can_open("/proc/self/status", O_RDONLY); }), 0);
  EXPECT_EQ(confined(*rules, [us] { return ::kill(us, 0) == 0; }), abi >= 6 ? EPERM : 0);
}

TEST(Confinement, SaysWhatTheKernelCannotDo) {
  const auto rules = prepare({});
  if (rules->limits_files()) {
    EXPECT_THAT(rules->describe(), HasSubstr("files by landlock (ABI "));
  } else {
    EXPECT_THAT(rules->describe(), HasSubstr("no landlock"));
  }
}

}  // namespace
}  // namespace llorch::base
