// Two worker programs: an answer of one goes on at the other, also when the first was killed in the
// middle of it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "worker/cut_answers.h"
#include "worker/worker_fixture.h"

namespace llorch::test {
namespace {

class CutProcessTest : public testing::Test {
 protected:
  CutProcessTest() {
    const std::filesystem::path file = folder_ / "template.jinja";
    std::ofstream(file) << kCutTemplate;
    const std::vector<std::string> flags = {"--chat-template", file.string(), "--max-batch", "4"};
    first_ = std::make_unique<WorkerFixture>(std::filesystem::path("builtin"), flags);
    second_ = std::make_unique<WorkerFixture>(std::filesystem::path("builtin"), flags);
    EXPECT_TRUE(first_->wait_until_healthy() && second_->wait_until_healthy());
  }

  TempDir folder_;
  std::unique_ptr<WorkerFixture> first_;
  std::unique_ptr<WorkerFixture> second_;
};

TEST_F(CutProcessTest, AnAnswerGoesOnInAnotherProcess) {
  EXPECT_EQ(first_->health().build, second_->health().build);
  EXPECT_EQ(first_->health().device_class, second_->health().device_class);
  std::size_t cuts = 0;
  for (const CutCase& one : cut_cases(first_->url(""))) {
    const bool is_chosen = one.name == "seeded" || one.name == "n = 3" || one.name == "schema" ||
                           one.name == "tool call" || one.name == "stop";
    if (is_chosen) cuts += check_cuts(one, first_->url(""), second_->url(""));
  }
  EXPECT_GT(cuts, 50U);
}

struct Heard {
  std::vector<std::int32_t> ids;
  std::string text;
  std::int64_t events = 0;
  std::optional<contract::InferenceResult> end;
};

// Adds what a stream of /execute says, until it ends in whatever way.
void hear(const std::string& url, const std::string& body, Heard& heard,
          const std::function<void()>& on_token = {}) {
  http::ClientRequest request(http::Method::Post, url);
  request.body = body;
  http::SseReader reader;
  const auto on_bytes = [&](std::string_view bytes) {
    std::vector<http::SseEvent> events;
    EXPECT_TRUE(reader.feed(bytes, events).ok());
    for (const http::SseEvent& event : events) {
      EXPECT_NE(event.event, "error") << event.data;
      if (event.event == "end") heard.end = contract::parse_end_event(event.data).take();
      if (event.event != "token") continue;
      const Result<contract::TokenEvent> token = contract::parse_token_event(event.data);
      EXPECT_EQ(token->index, heard.events) << "i goes on where it was";
      heard.ids.insert(heard.ids.end(), token->ids.begin(), token->ids.end());
      heard.text += token->text;
      ++heard.events;
      if (on_token) on_token();
    }
    return true;
  };
  http::Client client;
  [[maybe_unused]] const Result<http::Response> outcome = client.stream(request, on_bytes);
}

TEST_F(CutProcessTest, AKilledWorkersAnswerGoesOnWordForWord) {
  const std::string request =
      R"({"job_id":"j","prompt":"Once upon a time","seed":3,"max_tokens":400,"temperature":0.8)";
  Heard whole;
  hear(second_->url("/execute"), request + "}", whole);
  ASSERT_TRUE(whole.end.has_value());
  ASSERT_GT(whole.events, 20);
  Heard moved;
  hear(first_->url("/execute"), request + "}", moved, [&] {
    if (moved.events == 5) first_->process().signal(SIGKILL);
  });
  EXPECT_GE(moved.events, 5);
  ASSERT_FALSE(moved.end.has_value()) << "it was killed before its end";
  const std::string rest =
      fmt::format(R"({},"resume":{{"ids":[{}]}}}})", request, fmt::join(moved.ids, ","));
  hear(second_->url("/execute"), rest, moved);
  EXPECT_EQ(moved.text, whole.text);
  EXPECT_EQ(moved.ids, whole.ids);
  ASSERT_TRUE(moved.end.has_value());
  EXPECT_EQ(moved.end->tokens_out, whole.end->tokens_out);
  EXPECT_EQ(moved.end->stop_reason, whole.end->stop_reason);
}

}  // namespace
}  // namespace llorch::test
