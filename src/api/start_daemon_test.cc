#include "api/start_daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "support/test_paths.h"

namespace llorch::api {
namespace {

TEST(LastWords, AreThoseOfTheLastWholeLine) {
  EXPECT_EQ(last_words("", false), "it said nothing");
  EXPECT_EQ(last_words("\n\n", false), "it said nothing");
  EXPECT_EQ(last_words("", true),
            "it could not say why, the disk of its log is full: make room there");
  EXPECT_EQ(last_words("orchestratord: the port is taken\n", true),
            "orchestratord: the port is taken");
  const std::string first = R"({"time":"t","level":"error","message":"no room"})"
                            "\n";
  EXPECT_EQ(last_words(first, false), "no room");
  EXPECT_EQ(last_words(first + R"({"level":"error","message":"not stored","why":"disk"})", false),
            "not stored: disk");
}

TEST(LastWords, ALineWithoutItsEndIsNotShown) {
  const std::string cut = R"({"time":"2026-11-18T10:00:00Z","level":"inf)";
  EXPECT_EQ(last_words(cut, false), "its log ends in the middle of a line: the disk may be full");
  const std::string said = last_words("{\"message\":\"listening\"}\n" + cut, false);
  EXPECT_EQ(said, "listening (its log ends in the middle of the next line: the disk may be full)");
}

using ::testing::HasSubstr;

// A daemon that is a few words of shell; $LOG is its log.
struct Daemon {
  Status start(const std::string& script, const std::function<bool()>& is_ready) const {
    return start_daemon({.what = "the daemon",
                         .program = "/bin/sh",
                         .arguments = {"-c", "LOG=" + log.string() + "; " + script},
                         .log_file = log,
                         .patience = patience},
                        is_ready);
  }
  std::string failure_of(const std::string& script) const {
    const Status status = start(script, [] { return false; });
    return status.ok() ? "it started" : status.error().message;
  }

  test::TempDir folder;
  std::filesystem::path log = folder / "logs/daemon.log";
  std::chrono::milliseconds patience{20'000};
};

TEST(StartDaemon, WhatItSaidBeforeItHadALogIsTold) {
  const Daemon daemon;
  const std::string said = daemon.failure_of("echo 'daemon: --odd is not known' >&2; exit 2");
  EXPECT_EQ(said, "the daemon did not start: daemon: --odd is not known; its log is " +
                      daemon.log.string());
  EXPECT_THAT(daemon.failure_of("echo one; echo two >&2; exit 1"), HasSubstr(": one; two; "));
}

TEST(StartDaemon, WhatItsLogSaysLastIsTold) {
  const Daemon daemon;
  const std::string said = daemon.failure_of(
      "echo early >&2; echo '{\"message\":\"cannot\",\"why\":\"no room\"}' >> $LOG; exit 1");
  EXPECT_THAT(said, HasSubstr("the daemon did not start: cannot: no room; "));
}

TEST(StartDaemon, WhatALogHadBeforeIsNotItsWord) {
  const Daemon daemon;
  std::filesystem::create_directories(daemon.log.parent_path());
  std::ofstream(daemon.log) << "the life before\n";
  EXPECT_THAT(daemon.failure_of("exit 1"), HasSubstr("it said nothing"));
  EXPECT_THAT(daemon.failure_of("echo now >&2; exit 1"), HasSubstr("did not start: now; "));
  // A log that was full has moved aside.
  EXPECT_THAT(daemon.failure_of("mv $LOG $LOG.1; echo new > $LOG; exit 1"), HasSubstr(": new; "));
}

TEST(StartDaemon, ASignalThatEndedItIsNamed) {
  const Daemon daemon;
  const std::string said = daemon.failure_of("echo listening >> $LOG; kill -9 $$");
  EXPECT_THAT(said, HasSubstr("did not start: listening; it was ended by signal 9 (Killed); "));
}

TEST(StartDaemon, OneThatIsSlowIsToldApartFromOneThatEnded) {
  Daemon daemon;
  daemon.patience = std::chrono::milliseconds(200);
  const std::string said =
      daemon.failure_of("echo $$ > $LOG.pid; echo 'reading the catalog' >> $LOG; exec sleep 1000");
  EXPECT_THAT(said, HasSubstr("the daemon is not ready after 1 s; the last that it said: reading"));
  int pid = 0;
  std::ifstream(daemon.log.string() + ".pid") >> pid;
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
}

TEST(StartDaemon, AMissingProgramIsNamed) {
  const test::TempDir folder;
  const Status status = start_daemon({.what = "the daemon",
                                      .program = folder / "absent",
                                      .arguments = {},
                                      .log_file = folder / "log"},
                                     [] { return false; });
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("absent cannot be started: No such file"));
}

TEST(StartDaemon, OneThatIsReadyIsLeftAlone) {
  const Daemon daemon;
  const Status status =
      daemon.start("echo ready > $LOG", [&daemon] { return std::filesystem::exists(daemon.log); });
  EXPECT_TRUE(status.ok()) << status.error().message;
}

}  // namespace
}  // namespace llorch::api
