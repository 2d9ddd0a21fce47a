// Jobs that wait for hosts that are away: how long, what they hear, and what ends it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/test_house.h"

namespace llorch::fleet {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::SizeIs;

class DecideWait : public House {
 protected:
  // A host over ssh, up and with these workers.
  void add_ssh_host(const HostId& host, std::vector<SeenWorker> workers) {
    feed(HostAsked{host, HostKind::Ssh, HostWish::Up});
    for (const HostAction action : {HostAction::Preflight, HostAction::Install, HostAction::Start})
      feed(HostStepEnded{host, action, {.ok = true}});
    feed(report(host, std::move(workers)));
    ASSERT_TRUE(takes_work(fleet.hosts[find_host(fleet, host)].facts));
  }
  // Its link is down for that long: everything that is tried fails.
  void stay_away(const HostId& host, seconds time) {
    for (seconds passed{0}; passed < time; passed += seconds(1)) {
      pass(seconds(1));
      const std::optional<HostAction> action = fleet.hosts[find_host(fleet, host)].facts.under_way;
      if (!action) continue;
      feed(HostStepEnded{
          host, *action, {.reason = "bert does not answer; ssh said:\nno", .link = Link::Absent}});
    }
  }
  void lose(const HostId& host) { feed(PoolLost{host, "the ssh connection to bert broke"}); }
};

TEST_F(DecideWait, LongInTheQueueAJobOutlivesAHiccupOfItsOnlyHost) {
  add_host("a", {worker("w", 1, /*slots=*/1)});
  submit_task();
  begin_attempt();
  const JobId second = submit_task();
  for (int i = 0; i < 30; ++i) {
    pass(seconds(10));
    feed(report("a", {worker("w", 1, 1)}));
  }
  ASSERT_EQ(phase(second), Phase::Queued);
  feed(PoolLost{"a", "the peer closed the connection"});
  for (int i = 0; i < 3; ++i) pass(seconds(1));
  ASSERT_TRUE(is_live(second)) << "it has waited for five minutes, but not for the host";
  feed(report("a", {worker("w", 1, 1)}));
  end_attempt(AttemptEnd::Completed, 1);
  EXPECT_EQ(phase(second), Phase::Dispatched);
}

TEST_F(DecideWait, JobsWaitForAHostThatMayReturnAndHearWhy) {
  add_ssh_host("bert", {worker("w")});
  lose("bert");
  const JobId first = submit_task();
  const JobId second = submit_task();
  stay_away("bert", seconds(4));
  const auto told = [this](std::string_view reason) {
    return std::count_if(out.notices.begin(), out.notices.end(), [reason](const JobNotice& notice) {
      return notice.reason.find(reason) != std::string::npos;
    });
  };
  EXPECT_EQ(told("waits for host bert, which is not connected: bert does not answer"), 2);
  EXPECT_EQ(told("ssh said"), 0) << "its sentence is enough";
  stay_away("bert", seconds(176));
  EXPECT_EQ(phase(first), Phase::Queued);
  EXPECT_EQ(phase(second), Phase::Queued);
  feed(report("bert", {worker("w")}));
  EXPECT_EQ(phase(first), Phase::Dispatched);
  EXPECT_EQ(phase(second), Phase::Dispatched);
}

TEST_F(DecideWait, NotForEver) {
  add_ssh_host("bert", {worker("w")});
  lose("bert");
  const JobId first = submit_task();
  stay_away("bert", seconds(200));
  const JobId second = submit_task();
  stay_away("bert", seconds(90));
  EXPECT_TRUE(is_live(first));
  stay_away("bert", seconds(20));
  sync();
  EXPECT_FALSE(is_live(first));
  EXPECT_EQ(told_end().code, ErrorCode::Unavailable);
  EXPECT_THAT(told_end().message, HasSubstr("waits for host bert"));
  EXPECT_TRUE(is_live(second)) << "it has its own five minutes";
  stay_away("bert", seconds(200));
  sync();
  EXPECT_FALSE(is_live(second));
}

TEST_F(DecideWait, AMinuteWhereOnlyAPersonCanMendTheHost) {
  add_ssh_host("bert", {worker("w")});
  lose("bert");
  const JobId id = submit_task();
  feed(HostStepEnded{
      "bert", HostAction::Connect, {.reason = "its key has changed", .is_final = true}});
  for (int i = 0; i < 55; ++i) pass(seconds(1));
  EXPECT_TRUE(is_live(id)) << "it is only lost after three heartbeats";
  for (int i = 0; i < 10; ++i) pass(seconds(1));
  sync();
  EXPECT_FALSE(is_live(id));
}

TEST_F(DecideWait, AModelThatCannotBeLoadedFailsAlthoughAnotherHostIsAway) {
  add_ssh_host("bert", {});
  lose("bert");
  add_host("a", {});
  const JobId id = submit_task();
  for (int i = 0; i < 70 && is_live(id); ++i) {
    if (!out.loads.empty()) {
      const auto [host, plan] = out.loads.back();
      out.loads.clear();
      feed(LoadEnded{host, plan.load, Error{ErrorCode::LoadFailed, "not a model"}});
    }
    stay_away("bert", seconds(1));
    feed(report("a", {}));
    sync();
  }
  EXPECT_FALSE(is_live(id));
  EXPECT_THAT(told_end().message, HasSubstr("load failed"));
}

TEST_F(DecideWait, AfterARestartTheMemoryOfAHostCounts) {
  begin_recovery(fleet, kWall, now);
  fleet.memory.take_up("bert", std::to_string(kWall) + "\nm");
  feed(HostAsked{"bert", HostKind::Ssh, HostWish::Up});
  const JobId id{5, 1};
  const SubmittedRecord task{
      .model = kModel, .model_name = "m", .submitted_ms = kWall - 1000, .prompt_tokens = 10};
  ASSERT_TRUE(recover_job(fleet, {.job = id, .records = {task}, .stored = {}}, now, out).ok());
  feed(FollowersChanged{id, 1, 1});
  stay_away("bert", seconds(120));
  ASSERT_TRUE(is_live(id));
  EXPECT_THAT(out.notices.back().reason, HasSubstr("waits for host bert"));
  feed(HostStepEnded{"bert", HostAction::Preflight, {.ok = true}});
  feed(HostStepEnded{"bert", HostAction::Install, {.ok = true}});
  feed(HostStepEnded{"bert", HostAction::Start, {.ok = true}});
  feed(report("bert", {worker("w")}));
  pass(seconds(1));
  EXPECT_THAT(out.attempts, SizeIs(1));
}

TEST_F(DecideWait, APinnedJobHearsOfItsOwnHostAlone) {
  add_host("a", {worker("w")});
  add_ssh_host("bert", {worker("x")});
  lose("bert");
  out.notices.clear();
  submit_task({.mode = Mode::Pin, .pin_host = "bert"});
  stay_away("bert", seconds(3));
  EXPECT_THAT(out.attempts, IsEmpty());
  ASSERT_FALSE(out.notices.empty());
  EXPECT_THAT(out.notices.back().reason, HasSubstr("waits for host bert"));
  const std::size_t told = out.notices.size();
  stay_away("bert", seconds(10));
  EXPECT_THAT(out.notices, SizeIs(told)) << "once for each reason";
}

}  // namespace
}  // namespace llorch::fleet
