#include "orchestrator/host_steps.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <utility>

#include "support/test_paths.h"

namespace llorch::orchestrator {
namespace {

TEST(SshHostSteps, WhatIsOrderedAfterTheEndIsRefused) {
  SshHostSteps steps({.ssh = "/bin/false", .run_folder = "/tmp", .programs = {}, .on_lost = {}});
  // The last failures are heard by an owner that decides what to do about them, and orders it.
  std::promise<HostSteps::Outcome> first;
  steps.step("anna", fleet::HostAction::Connect,
             [&first](HostSteps::Outcome outcome) { first.set_value(std::move(outcome)); });
  EXPECT_FALSE(first.get_future().get().step.ok);
  steps.stop();
  int answers = 0;
  steps.step("anna", fleet::HostAction::Connect, [&answers](const HostSteps::Outcome& outcome) {
    EXPECT_FALSE(outcome.step.ok);
    EXPECT_FALSE(outcome.step.is_final);
    EXPECT_EQ(outcome.step.reason, "the orchestrator ends");
    ++answers;
  });
  EXPECT_EQ(answers, 1);
}

TEST(SshHostSteps, NoMoreThanAFewWaitForAHost) {
  std::promise<void> reached;
  std::promise<void> released;
  std::atomic<int> answers = 0;
  SshHostSteps steps({.ssh = "/bin/false", .run_folder = "/tmp", .programs = {}, .on_lost = {}});
  steps.step("anna", fleet::HostAction::Connect, [&](const HostSteps::Outcome&) {
    reached.set_value();
    released.get_future().wait();
  });
  reached.get_future().wait();
  for (int i = 0; i < 4; ++i)
    steps.step("anna", fleet::HostAction::Connect, [&](const HostSteps::Outcome&) { ++answers; });
  EXPECT_EQ(answers, 0);
  std::string refused;
  steps.step("anna", fleet::HostAction::Connect,
             [&](const HostSteps::Outcome& outcome) { refused = outcome.step.reason; });
  EXPECT_EQ(refused, "4 steps wait for anna already");
  released.set_value();
  steps.stop();
  EXPECT_EQ(answers, 4);
}

// Stands for ssh: its master stays until `on_call`, which every other call runs, ends it.
std::filesystem::path make_ssh(const std::filesystem::path& folder, const std::string& on_call) {
  const std::filesystem::path ssh = folder / "ssh";
  std::ofstream(ssh) << "#!/bin/sh\n"
                        "for word; do\n"
                        "  [ \"$before\" = -S ] && socket=$word\n"
                        "  [ \"$word\" = -M ] && is_master=yes\n"
                        "  before=$word\n"
                        "done\n"
                        "if [ -n \"$is_master\" ]; then\n"
                        "  echo $$ > "
                     << (folder / "master").string()
                     << "\n"
                        "  : > \"$socket\"\n"
                        "  exec sleep 1000\n"
                        "fi\n"
                     << on_call << "\n";
  std::filesystem::permissions(ssh, std::filesystem::perms::owner_all);
  return ssh;
}

fleet::HostStepOutcome perform(const std::filesystem::path& ssh,
                               const std::filesystem::path& folder, fleet::HostAction action) {
  std::promise<HostSteps::Outcome> ended;
  SshHostSteps steps({.ssh = ssh, .run_folder = folder, .programs = {}, .on_lost = {}});
  steps.step("anna", action,
             [&ended](HostSteps::Outcome outcome) { ended.set_value(std::move(outcome)); });
  return ended.get_future().get().step;
}

TEST(SshHostSteps, AConnectionThatBreaksInTheMiddleSaysNothingAboutTheHost) {
  for (const auto& [action, what] : {std::pair{fleet::HostAction::Preflight, "it was looked at"},
                                     std::pair{fleet::HostAction::Install, "programs were copied"},
                                     std::pair{fleet::HostAction::Start, "its pool was started"}}) {
    const test::TempDir folder;
    const auto ssh = make_ssh(folder.path(), "kill $(cat " + (folder / "master").string() +
                                                 "); rm \"$socket\"; exit 255");
    const fleet::HostStepOutcome outcome = perform(ssh, folder.path(), action);
    EXPECT_FALSE(outcome.ok);
    EXPECT_EQ(outcome.link, fleet::Link::Broke) << what;
    EXPECT_FALSE(outcome.is_final);
    EXPECT_EQ(outcome.reason, std::string("the ssh connection to anna broke while ") + what);
  }
}

TEST(SshHostSteps, AStepThatFailsOverAConnectionThatHoldsIsTheHostsFault) {
  const test::TempDir folder;
  const auto ssh = make_ssh(folder.path(), "echo 'no room on its disk'; exit 1");
  const fleet::HostStepOutcome outcome = perform(ssh, folder.path(), fleet::HostAction::Start);
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.link, fleet::Link::Held);
  EXPECT_NE(outcome.reason.find("no room on its disk"), std::string::npos) << outcome.reason;
}

TEST(SshHostSteps, AHostThatIsNotReachedHasNoConnection) {
  const test::TempDir folder;
  const fleet::HostStepOutcome outcome =
      perform("/bin/false", folder.path(), fleet::HostAction::Preflight);
  EXPECT_FALSE(outcome.ok);
  EXPECT_EQ(outcome.link, fleet::Link::Absent);
}

}  // namespace
}  // namespace llorch::orchestrator
