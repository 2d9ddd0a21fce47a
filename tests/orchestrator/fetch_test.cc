// A task for a model that is nowhere yet: the pool fetches it, from a hub of ours, while those who
// follow hear how far that has come. The real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <vector>

#include "fleet_home.h"
#include "hub_simulator/hub_simulator.h"

namespace llorch::test {
namespace {

// The smallest known name, and what the hub has under it: the model that every worker has.
constexpr const char* kName = "smollm2-135m";

SimRepo make_repo() {
  std::ifstream in(source_path("models/builtin/stories.gguf"), std::ios::binary);
  return {.name = "bartowski/SmolLM2-135M-Instruct-GGUF",
          .commit = std::string(40, 'a'),
          .license = "mit",
          .files = {
              {"SmolLM2-135M-Instruct-Q8_0.gguf", {std::istreambuf_iterator<char>(in), {}}, true}}};
}

// How far its download had come, each time that a follower heard of it.
std::vector<double> progress_of(const Followed& followed) {
  std::vector<double> all;
  for (const http::SseEvent& event : followed.events) {
    if (event.event != "loading") continue;
    const Result<json::Value> data = json::parse(event.data);
    EXPECT_TRUE(data.ok()) << event.data;
    const json::Value* stage = data.ok() ? data->as_object().if_contains("stage") : nullptr;
    if (stage == nullptr || *stage != "fetching") continue;
    if (const json::Value* progress = data->as_object().if_contains("progress"))
      all.push_back(progress->to_number<double>());
  }
  return all;
}

TEST(Fetching, WhoFollowsHearsItAndTheModelComesOnce) {
  const SimRepo repo = make_repo();
  const auto size = static_cast<std::int64_t>(repo.files.front().content.size());
  HubSimulator hub;
  hub.put_repo(repo);
  // Two seconds and more, so that there is something between nothing and all.
  hub.add_fault({.path = "/lfs/", .times = 1'000'000, .bytes_per_second = 2'000'000});
  FleetHome home({}, {"HF_ENDPOINT=" + hub.url(), "HF_TOKEN="});
  ASSERT_NO_FATAL_FAILURE(home.start());
  json::Object body = story(8);
  body["model"] = kName;
  const std::string job = home.submit(body);
  const std::string other = home.submit(body);
  std::vector<std::future<Followed>> followers;
  for (const std::string& id : {job, job, other})
    followers.push_back(std::async(std::launch::async, [&home, id] { return home.follow(id); }));
  std::string text;
  for (std::future<Followed>& follower : followers) {
    const Followed followed = follower.get();
    ASSERT_EQ(followed.count("end"), 1U) << home.err();
    EXPECT_EQ(followed.count("error"), 0U);
    const std::vector<double> progress = progress_of(followed);
    ASSERT_FALSE(progress.empty());
    EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()))
        << ::testing::PrintToString(progress);
    EXPECT_GT(progress.back(), progress.front()) << ::testing::PrintToString(progress);
    EXPECT_LE(progress.back(), 1);
    EXPECT_FALSE(followed.text.empty());
    if (text.empty()) text = followed.text;
    EXPECT_EQ(followed.text, text) << "the same request";
  }
  EXPECT_EQ(hub.bytes_sent("/lfs/"), size) << "each byte once";
}

}  // namespace
}  // namespace llorch::test
