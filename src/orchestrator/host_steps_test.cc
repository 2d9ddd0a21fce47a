#include "orchestrator/host_steps.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>

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

}  // namespace
}  // namespace llorch::orchestrator
