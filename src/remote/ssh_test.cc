#include "remote/ssh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "remote/back_off.h"
#include "remote/ssh_failure.h"

namespace llorch::remote {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

constexpr const char* kControl = "/run/user/7/llorch/cf44e64e75f3948e9";
constexpr const char* kTunnel = "/run/user/7/llorch/tf44e64e75f3948e9";

SshHost beta() {
  Result<SshHost> host = SshHost::make("beta", "/run/user/7/llorch");
  EXPECT_TRUE(host.ok()) << host.error().message;
  return host.take();
}

TEST(SshHost, TakesNamesThatAProxyCommandMayPaste) {
  for (const char* name :
       {"beta", "10.0.0.7", "user@beta.example.org", "fe80::1%eth0", "a_b-c", "first.last@host-2"})
    EXPECT_TRUE(SshHost::make(name, "/run/llorch").ok()) << name;
}

TEST(SshHost, RefusesNamesThatAreOptionsOrShellText) {
  for (const char* name : {"",
                           "all",
                           "-oProxyCommand=id",
                           "a@-oProxyCommand=id",
                           "a;b",
                           "$(id)",
                           "`id`",
                           "a b",
                           "a\nb",
                           "a|b",
                           "a@b@c",
                           "@a",
                           "a@",
                           "a/b",
                           "a'b",
                           "a\"b",
                           "a\\b",
                           "ä",
                           ".a",
                           "%h",
                           ":1"}) {
    const Result<SshHost> host = SshHost::make(name, "/run/llorch");
    ASSERT_FALSE(host.ok()) << name;
    EXPECT_EQ(host.error().code, ErrorCode::InvalidArgument);
  }
  EXPECT_FALSE(SshHost::make(std::string(256, 'a'), "/run/llorch").ok());
}

TEST(SshHost, SocketNamesAreShortAndDifferByHost) {
  const std::string long_name = std::string(200, 'a');
  const Result<SshHost> host = SshHost::make(long_name, "/run/user/1000/llorch");
  ASSERT_TRUE(host.ok());
  EXPECT_EQ(host->control_socket().filename().string().size(), 17U);
  EXPECT_NE(host->control_socket(), host->tunnel_socket());
  EXPECT_NE(host->control_socket(), beta().control_socket());
  EXPECT_EQ(beta().control_socket(), kControl);
}

TEST(SshHost, LeavesTheMasterRoomForItsTemporaryName) {
  // "/", 17 characters, and 17 more while the master makes its socket: 107 is all there is.
  const std::string fits = "/" + std::string(71, 'f');
  ASSERT_EQ(fits.size() + 1 + 17 + 17, kMaxSocketPathBytes - 0U);
  EXPECT_TRUE(SshHost::make("beta", fits).ok());
  const Result<SshHost> host = SshHost::make("beta", fits + "f");
  ASSERT_FALSE(host.ok());
  EXPECT_THAT(host.error().message, HasSubstr("at most 72 bytes"));
}

TEST(SshHost, RefusesFoldersThatSshWouldReadDifferently) {
  for (const char* folder : {"relative", "/a b", "/a%h", "/a${HOME}", "/a:b", "/a\\b", "/[a"})
    EXPECT_FALSE(SshHost::make("beta", folder).ok()) << folder;
  EXPECT_TRUE(SshHost::make("beta", "/home/jürgen/.local").ok());
}

TEST(Ssh, TheMasterFollowsTheUsersConfigurationAndNothingMore) {
  EXPECT_THAT(
      master_words(beta(), FirstContact::Refuse),
      ElementsAre("-M", "-N", "-n", "-T", "-S", kControl, "-o", "ControlPersist=no", "-o",
                  "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10",
                  "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o",
                  "ClearAllForwardings=yes", "-o", "StreamLocalBindUnlink=yes", "-o",
                  "RemoteCommand=none", "-o", "PermitLocalCommand=no", "-o", "ForwardAgent=no",
                  "-o", "ForwardX11=no", "-o", "LogLevel=ERROR", "--", "beta"));
  EXPECT_THAT(master_words(beta(), FirstContact::AcceptNew),
              ::testing::Contains("StrictHostKeyChecking=accept-new"));
}

TEST(Ssh, OnlyTheTerminalsMasterMayAsk) {
  const SshWords words = terminal_master_words(beta());
  EXPECT_THAT(words, ::testing::Contains("StrictHostKeyChecking=ask"));
  EXPECT_THAT(words, ::testing::Contains("ControlPersist=yes"));
  EXPECT_THAT(words, Not(::testing::Contains("BatchMode=yes")));
  EXPECT_THAT(probe_words(beta()), ::testing::Contains("BatchMode=yes"));
}

TEST(Ssh, EverythingElseGoesThroughTheMaster) {
  EXPECT_THAT(check_words(beta()), ElementsAre("-F", "none", "-o", "ProxyCommand=false", "-S",
                                               kControl, "-O", "check", "--", "beta"));
  EXPECT_THAT(exit_words(beta()), ElementsAre("-F", "none", "-o", "ProxyCommand=false", "-S",
                                              kControl, "-O", "exit", "--", "beta"));
  const Result<SshWords> forward = forward_words(beta(), "/home/me/pool.sock");
  ASSERT_TRUE(forward.ok());
  EXPECT_THAT(*forward,
              ElementsAre("-F", "none", "-o", "ProxyCommand=false", "-S", kControl, "-O", "forward",
                          "-L", std::string(kTunnel) + ":/home/me/pool.sock", "--", "beta"));
  const Result<SshWords> exec = exec_words(beta(), {{"id"}, {}}, Terminal::No);
  ASSERT_TRUE(exec.ok());
  EXPECT_THAT(
      *exec,
      ElementsAre("-F", "none", "-o", "ProxyCommand=false", "-S", kControl, "-T", "--", "beta",
                  "exec .local/lib/llorch/current/llorch-pool rexec W1siaWQiXSxbXV0"));
  EXPECT_THAT(*exec_words(beta(), {{"id"}, {}}, Terminal::Yes), ::testing::Contains("-tt"));
  EXPECT_THAT(script_words(beta(), "echo \"$HOME\"").back(), "exec sh -c 'echo \"$HOME\"'");
}

TEST(Ssh, TunnelsLeadToASocketOrToLoopback) {
  EXPECT_TRUE(forward_words(beta(), "127.0.0.1:9200").ok());
  EXPECT_EQ(cancel_forward_words(beta(), "127.0.0.1:9200")->at(7), "cancel");
  for (const char* remote : {"", "pool.sock", "/a:b", "/a b", "/a%d", "10.0.0.1:80",
                             "127.0.0.1:", "127.0.0.1:1x", "127.0.0.1:123456"})
    EXPECT_FALSE(forward_words(beta(), remote).ok()) << remote;
  EXPECT_FALSE(forward_words(beta(), "/" + std::string(107, 'a')).ok());
}

TEST(Ssh, AScriptThatAShellCouldReadIsABug) {
  for (const char* script : {"it's", "a!b", "a\\b", "a\nb"})
    EXPECT_DEATH(script_words(beta(), script), "a shell would read") << script;
}

TEST(SshFailure, NamesTheCauseAndWhatToDo) {
  struct Case {
    const char* output;
    SshFailureKind kind;
    const char* told;
    bool needs_a_person;
  };
  const Case cases[] = {
      {"ssh: Could not resolve hostname beta: Name or service not known\r\n",
       SshFailureKind::UnknownName, "no host is known as beta", false},
      {"ssh: connect to host 10.0.0.7 port 22: Connection refused\n", SshFailureKind::Unreachable,
       "does sshd run", false},
      {"ssh: connect to host 10.0.0.7 port 22: No route to host\n", SshFailureKind::Unreachable,
       "beta does not answer", false},
      {"No ED25519 host key is known for beta and you have requested strict checking.\n"
       "Host key verification failed.\n",
       SshFailureKind::HostKeyUnknown, "--accept-new", true},
      {"@@@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@@@@\n"
       "Host key verification failed.\n",
       SshFailureKind::HostKeyChanged, "ssh-keygen -R", true},
      {"me@beta: Permission denied (publickey,password).\n", SshFailureKind::LoginRefused,
       "does not let us in", true},
      {"Timeout, server beta not responding.\n", SshFailureKind::ConnectionLost, "was lost", false},
      {"Connection to 10.0.0.7 closed by remote host.\n", SshFailureKind::ConnectionLost,
       "was lost", false},
      {"something new\n", SshFailureKind::Other,
       "could not connect to beta; ssh said:\nsomething new", false},
      {"", SshFailureKind::Other, "ssh could not connect to beta", false},
  };
  for (const Case& each : cases) {
    const SshFailure failure = explain_ssh_failure("beta", each.output);
    EXPECT_EQ(failure.kind, each.kind) << each.output;
    EXPECT_THAT(failure.sentence, HasSubstr(each.told));
    EXPECT_EQ(failure.needs_a_person, each.needs_a_person) << each.output;
  }
}

TEST(SshFailure, ShowsTheLastTwentyLinesAndNoControlCharacters) {
  std::string output;
  for (int i = 0; i < 50; ++i) output += "line " + std::to_string(i) + "\x1b[2J\r\n\n";
  const std::string shown = last_lines(output);
  EXPECT_THAT(shown, HasSubstr("line 30"));
  EXPECT_THAT(shown, HasSubstr("line 49"));
  EXPECT_THAT(shown, Not(HasSubstr("line 29")));
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
  EXPECT_THAT(shown, Not(HasSubstr("\r")));
}

TEST(BackOff, DoublesUpToAMinuteWithAQuarterOfChance) {
  EXPECT_EQ(back_off(1, 1.0), milliseconds(500));
  EXPECT_EQ(back_off(1, 0.0), milliseconds(375));
  EXPECT_EQ(back_off(2, 1.0), milliseconds(1000));
  EXPECT_EQ(back_off(7, 1.0), milliseconds(32'000));
  EXPECT_EQ(back_off(8, 1.0), milliseconds(60'000));
  EXPECT_EQ(back_off(1'000'000, 1.0), milliseconds(60'000));
  EXPECT_EQ(back_off(1'000'000, 0.5), milliseconds(52'500));
}

}  // namespace
}  // namespace llorch::remote
