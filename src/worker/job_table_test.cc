#include "worker/job_table.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace llorch::worker {
namespace {

TEST(JobTable, AnIdInUseIsAConflictUntilItEnds) {
  JobTable jobs;
  const Result<JobTable::Use> use = jobs.begin("a");
  ASSERT_TRUE(use.ok());
  EXPECT_EQ(jobs.begin("a").error().code, ErrorCode::Conflict);
  EXPECT_EQ(jobs.num_active(), 1U);
  jobs.end(*use);
  EXPECT_EQ(jobs.num_active(), 0U);
  EXPECT_TRUE(jobs.begin("a").ok());
}

TEST(JobTable, CancelFindsTheGeneration) {
  JobTable jobs;
  const JobTable::Use use = jobs.begin("a").value();
  EXPECT_FALSE(jobs.bind(use, 17));
  EXPECT_EQ(jobs.cancel("a").value(), 17U);
  EXPECT_EQ(jobs.cancel("a").value(), 17U) << "idempotent";
  jobs.end(use);
  EXPECT_EQ(jobs.cancel("a").value(), std::nullopt) << "ended: known, nothing to do";
  EXPECT_EQ(jobs.cancel("b").error().code, ErrorCode::NotFound);
}

TEST(JobTable, ACancelBeforeTheGenerationIsKnownIsToldToBind) {
  JobTable jobs;
  const JobTable::Use use = jobs.begin("a").value();
  EXPECT_EQ(jobs.cancel("a").value(), std::nullopt);
  EXPECT_TRUE(jobs.bind(use, 17));
}

TEST(JobTable, ALateBindDoesNotTouchTheNextUse) {
  JobTable jobs;
  const JobTable::Use first = jobs.begin("a").value();
  jobs.end(first);  // so quick that its generation was never bound
  const JobTable::Use second = jobs.begin("a").value();
  EXPECT_FALSE(jobs.bind(first, 17));
  EXPECT_EQ(jobs.cancel("a").value(), std::nullopt);
  EXPECT_TRUE(jobs.bind(second, 18));
  jobs.end(first);
  EXPECT_EQ(jobs.num_active(), 1U);
}

TEST(JobTable, AWithdrawnUseNeverWas) {
  JobTable jobs;
  jobs.withdraw(jobs.begin("a").value());
  EXPECT_EQ(jobs.cancel("a").error().code, ErrorCode::NotFound);
  EXPECT_TRUE(jobs.begin("a").ok());
}

TEST(JobTable, RemembersABoundedNumber) {
  JobTable jobs(3);
  for (int i = 0; i < 10; ++i) jobs.end(jobs.begin(fmt::format("j{}", i)).value());
  EXPECT_FALSE(jobs.cancel("j6").ok());
  for (int i = 7; i < 10; ++i) EXPECT_TRUE(jobs.cancel(fmt::format("j{}", i)).ok()) << i;
  // An id that ended twice is remembered as long as its last end is.
  jobs.end(jobs.begin("j9").value());
  jobs.end(jobs.begin("x").value());
  EXPECT_TRUE(jobs.cancel("j9").ok());
  EXPECT_FALSE(jobs.cancel("j8").ok());
}

}  // namespace
}  // namespace llorch::worker
