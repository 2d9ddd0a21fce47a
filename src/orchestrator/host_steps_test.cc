#include "orchestrator/host_steps.h"

#include <gtest/gtest.h>

#include <future>

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

}  // namespace
}  // namespace llorch::orchestrator
