#include "fleet/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/test_house.h"

namespace llorch::fleet {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre, ::testing::IsEmpty, ::testing::SizeIs;

TEST(HostMemory, KeepsWhatChangesAndNowAndThenTheTime) {
  HostMemory memory;
  const auto first = memory.note_seen("a", {"llama", "gpt2", "llama"}, 1000);
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].host, "a");
  EXPECT_EQ(first[0].text, "1000\ngpt2\nllama");
  EXPECT_THAT(memory.note_seen("a", {"gpt2", "llama"}, 2000), IsEmpty());
  EXPECT_THAT(memory.note_seen("a", {"gpt2", "llama"}, 1000 + HostMemory::kRefreshMs), SizeIs(1));
  EXPECT_THAT(memory.note_seen("a", {"gpt2"}, 1001 + HostMemory::kRefreshMs), SizeIs(1));
  EXPECT_THAT(memory.hosts_of("llama"), IsEmpty());
  EXPECT_THAT(memory.hosts_of("gpt2"), ElementsAre("a"));
  EXPECT_THAT(memory.note_gone("a", 2000), IsEmpty()) << "that is older than what is known";
  EXPECT_THAT(memory.note_gone("a", 2'000'000), SizeIs(1));
  EXPECT_EQ(memory.hosts().at("a").seen_ms, 2'000'000);
}

TEST(HostMemory, ForgetsTheHostThatWasNotSeenForLongest) {
  HostMemory memory;
  for (std::size_t i = 0; i < HostMemory::kHostsMax; ++i)
    ASSERT_THAT(memory.note_seen(std::to_string(i), {"m"}, static_cast<UnixMs>(5000 - i)),
                SizeIs(1));
  const auto changes = memory.note_seen("new", {"m"}, 6000);
  ASSERT_THAT(changes, SizeIs(2));
  EXPECT_EQ(changes[1].host, std::to_string(HostMemory::kHostsMax - 1));
  EXPECT_EQ(changes[1].text, "");
  EXPECT_THAT(memory.hosts(), SizeIs(HostMemory::kHostsMax));
  std::vector<std::string> many;
  for (std::size_t i = 0; i < 2 * HostMemory::kModelsMax; ++i) many.push_back(std::to_string(i));
  memory.note_seen("new", many, 7000);
  EXPECT_THAT(memory.hosts().at("new").models, SizeIs(HostMemory::kModelsMax));
}

TEST(HostMemory, ItsTextComesBackAndNonsenseDoesNot) {
  HostMemory memory;
  memory.take_up("a", "77\nllama 3\nx");
  EXPECT_EQ(memory.hosts().at("a").seen_ms, 77);
  EXPECT_THAT(memory.hosts_of("llama 3"), ElementsAre("a"));
  memory.take_up("none", "5");
  EXPECT_THAT(memory.hosts().at("none").models, IsEmpty());
  for (const std::string_view bad : {"", "x", "-1\nm", "1x\nm", "\nm", "99999999999999999999\nm"})
    EXPECT_FALSE(host_memory_from_text(bad)) << bad;
  memory.take_up("bad", "x");
  EXPECT_FALSE(memory.hosts().contains("bad"));
}

using DecideMemory = House;

TEST_F(DecideMemory, WhatAHostHasIsKeptAndWhenItWasLastThere) {
  add_host("a", {worker("w")});
  EXPECT_EQ(out.kept["a"], std::to_string(wall()) + "\nm");
  PoolSeen seen = report("a", {worker("w")});
  seen.models.front().name = "llama";
  seen.models.back().name = "fetchable";
  seen.models.back().missing_bytes = 100;
  seen.revision = 1;
  feed(seen);
  const UnixMs last_seen = wall();
  EXPECT_EQ(out.kept["a"], std::to_string(last_seen) + "\nllama") << "only what is on its disk";
  for (int i = 0; i < 4; ++i) pass(seconds(16));
  EXPECT_EQ(fleet.hosts.front().facts.state, HostState::Gone);
  EXPECT_EQ(out.kept["a"], std::to_string(last_seen) + "\nllama");
}

}  // namespace
}  // namespace llorch::fleet
