// kill -9 in the middle of an answer: nothing that was accepted is forgotten, and nothing is told
// twice.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "fleet_home.h"

namespace llorch::test {
namespace {

TEST(OrchestratordRecovery, AnAnswerGoesOnAfterAKill) {
  FleetHome home;
  ASSERT_NO_FATAL_FAILURE(home.start());
  const std::string undisturbed = home.submit(story(150));
  const Followed reference = home.follow(undisturbed);
  ASSERT_EQ(reference.count("end"), 1U) << home.err();

  const std::string job = home.submit(story(150));
  const Followed head =
      home.follow(job, {}, [](const Followed& f) { return f.count("token") >= 40; });
  ASSERT_GE(head.count("token"), 40U);
  const std::string position = head.events.back().id;
  ASSERT_FALSE(position.empty());
  home.kill();
  ASSERT_NO_FATAL_FAILURE(home.start());
  const Followed rest = home.follow(job, position);
  EXPECT_EQ(rest.count("end"), 1U) << home.err();
  EXPECT_EQ(rest.count("started"), 0U);
  EXPECT_EQ(head.text + rest.text, reference.text);

  const Followed whole = home.follow(job);
  EXPECT_EQ(whole.text, reference.text);
  EXPECT_EQ(whole.count("started"), 1U);
  EXPECT_EQ(whole.count("end"), 1U);
  const Answer task = home.get("/v2/tasks/" + job);
  EXPECT_EQ(task.text("status"), "completed");
  EXPECT_EQ(task.number("tokens_out"), home.get("/v2/tasks/" + undisturbed).number("tokens_out"));
}

TEST(OrchestratordRecovery, EveryAcceptedJobEndsOnce) {
  FleetHome home;
  ASSERT_NO_FATAL_FAILURE(home.start());
  std::vector<std::string> jobs;
  for (int i = 0; i < 24; ++i) jobs.push_back(home.submit(story(20)));
  home.kill();
  ASSERT_NO_FATAL_FAILURE(home.start());
  std::string text;
  for (const std::string& job : jobs) {
    const Followed followed = home.follow(job);
    ASSERT_EQ(followed.count("end"), 1U) << job;
    if (text.empty()) text = followed.text;
    EXPECT_EQ(followed.text, text);
    EXPECT_EQ(home.get("/v2/tasks/" + job).text("status"), "completed");
  }
  EXPECT_EQ(home.stop(), 0);
  ASSERT_NO_FATAL_FAILURE(home.start());
  EXPECT_EQ(home.get("/v2/status").number("queued"), 0);
}

TEST(OrchestratordRecovery, APoolThatStayedTakesAnOrchestratorWhoseStoreIsNew) {
  FleetHome home;
  ASSERT_NO_FATAL_FAILURE(home.start());
  ASSERT_EQ(home.follow(home.submit(story(5))).count("end"), 1U) << home.err();
  const std::string pool = home.pool_url();
  EXPECT_EQ(home.stop(), 0);
  for (const char* file : {"llorch.db", "llorch.db-wal", "llorch.db-shm"})
    std::filesystem::remove(home.folder() / file);
  ASSERT_NO_FATAL_FAILURE(home.start());
  EXPECT_EQ(home.pool_url(), pool) << "the same one";
  EXPECT_EQ(home.follow(home.submit(story(5))).count("end"), 1U) << home.err();
}

}  // namespace
}  // namespace llorch::test
