#include "orchestrator/find_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/test_house.h"

namespace llorch::orchestrator {
namespace {

using fleet::HostKind;
using fleet::HostWish;
using std::chrono::seconds;
using ::testing::HasSubstr, ::testing::Not;

class FindModel : public fleet::House {
 protected:
  ModelSearch find(std::string_view name, fleet::KeyId key = {}) const {
    return find_model_by_name(fleet, name, key);
  }
  void lose_hosts() {
    for (int i = 0; i < 4; ++i) pass(seconds(16));
  }
};

TEST_F(FindModel, FindsWhatAHostHasAlsoWhileItsLinkIsDown) {
  add_host("box2", {});
  ASSERT_TRUE(find("m").found);
  EXPECT_EQ(find("m").found->name, "m");
  pass(seconds(16));
  ASSERT_EQ(fleet.hosts.front().facts.state, fleet::HostState::Degraded);
  EXPECT_TRUE(find("m").found) << "it is likely to come back while a job waits";
}

TEST_F(FindModel, AModelOfAHostThatIsGoneIsUnavailableAndTheHostIsNamed) {
  add_host("box2", {});
  fleet.hosts.front().facts.kind = HostKind::Ssh;
  lose_hosts();
  const ModelSearch search = find("m");
  ASSERT_FALSE(search.found);
  EXPECT_EQ(search.error.code, ErrorCode::Unavailable);
  EXPECT_GT(search.retry_after_ms, 0);
  EXPECT_THAT(search.error.message, HasSubstr("model 'm' is on host box2, which is not connected "
                                              "since 2023-11-14T22:13:20"));
  EXPECT_THAT(search.error.message, HasSubstr("; llorch up box2"));
  EXPECT_EQ(find("other").error.code, ErrorCode::NotFound);
}

TEST_F(FindModel, WhatAHostHadBeforeTheStartIsRemembered) {
  fleet.memory.take_up("box2", "1700000000000\nllama");
  fleet.memory.take_up("box3", "1700000100000\nllama\nother");
  const ModelSearch both = find("llama");
  EXPECT_EQ(both.error.code, ErrorCode::Unavailable);
  EXPECT_THAT(both.error.message,
              HasSubstr("hosts that are not connected: box2 since 2023-11-14T22:13:20"));
  EXPECT_THAT(both.error.message, HasSubstr("box3 since 2023-11-14T22:15:00"));
  EXPECT_THAT(find("other").error.message, HasSubstr("host box3"));
  // It joins by itself, and nothing from here can make it.
  feed(fleet::HostAsked{"box3", HostKind::Joined, HostWish::Up});
  EXPECT_THAT(find("other").error.message, HasSubstr("start its pool there"));
  // Once it has said what it has, that counts.
  feed(report("box3", {}));
  EXPECT_EQ(find("other").error.code, ErrorCode::NotFound);
  EXPECT_TRUE(find("m").found);
}

TEST_F(FindModel, AHostThatIsComingUpMayHaveIt) {
  feed(fleet::HostAsked{"box2", HostKind::Ssh, HostWish::Up});
  const ModelSearch search = find("llama");
  EXPECT_EQ(search.error.code, ErrorCode::Unavailable);
  EXPECT_THAT(search.error.message, HasSubstr("host box2 is still coming up"));
}

TEST_F(FindModel, AHostThatWasTakenDownIsNamedToo) {
  add_host("box2", {});
  feed(fleet::HostAsked{"box2", HostKind::Joined, HostWish::Down});
  EXPECT_EQ(find("m").error.code, ErrorCode::Unavailable);
  EXPECT_THAT(find("m").error.message, HasSubstr("was taken down"));
}

TEST_F(FindModel, AKeyHearsNothingOfModelsThatItMayNotUse) {
  fleet.memory.take_up("box2", "1700000000000\nllama");
  const fleet::KeyId key{7};
  feed(fleet::KeyChanged{key, {.name = "k", .models = {"gpt*"}}});
  EXPECT_EQ(find("llama", key).error.code, ErrorCode::NotFound);
  EXPECT_THAT(find("llama", key).error.message, Not(HasSubstr("box2")));
  add_host("box3", {});  // which has "m"
  EXPECT_THAT(find("mm").error.message, HasSubstr("did you mean m"));
  EXPECT_THAT(find("mm", key).error.message, HasSubstr("none has one for this key"));
}

}  // namespace
}  // namespace llorch::orchestrator
