#include "orchestrator/attempt_body.h"

#include <gtest/gtest.h>

#include <limits>

namespace llorch::orchestrator {
namespace {

using fleet::JobKind;

const fleet::AttemptId kAttempt{{1, 2}, 3, 4};

std::string body(std::string_view text, JobKind kind, const ToldIds& told = {{}},
                 std::uint64_t seed = 9) {
  const Result<std::string> made = attempt_body(text, kind, seed, kAttempt, told);
  EXPECT_TRUE(made.ok());
  return made.ok() ? *made : "";
}

TEST(AttemptBody, ExecuteGetsItsMembersBeforeTheLastBrace) {
  const std::string name = "00000000000000010000000000000002.3.4";
  EXPECT_EQ(body(R"({"prompt":"}"} )", JobKind::Execute),
            R"({"prompt":"}","job_id":")" + name + R"(","seed":9})");
  EXPECT_EQ(body("{ }", JobKind::Execute), R"({ "job_id":")" + name + R"(","seed":9})");
  EXPECT_EQ(body(R"({"prompt":"p"})", JobKind::Execute, {{1, 2}}),
            R"({"prompt":"p","job_id":")" + name + R"(","seed":9,"resume":{"ids":[1,2]}})");
}

TEST(AttemptBody, ChatIsStreamedWithItsUsageFromTheModelThatIsThere) {
  EXPECT_EQ(body(R"({"model":"m","messages":[1],"stream":false,"seed":3,"stream_options":null})",
                 JobKind::Chat),
            R"({"messages":[1],"stream":true,"stream_options":{"include_usage":true},"seed":9})");
  EXPECT_EQ(
      body(R"({"n":2})", JobKind::Chat, {{1}, {}}, std::numeric_limits<std::uint64_t>::max()),
      R"({"n":2,"stream":true,"stream_options":{"include_usage":true},"seed":-1,"llorch":{"resume_ids":[[1],[]]}})");
  EXPECT_EQ(
      body(R"({})", JobKind::Completion, {{5, 6}}),
      R"({"stream":true,"stream_options":{"include_usage":true},"seed":9,"llorch":{"resume_ids":[5,6]}})");
  EXPECT_EQ(body(R"({"model":"m","input":"a"})", JobKind::Embedding), R"({"input":"a"})");
}

TEST(AttemptBody, RefusesWhatIsNoObject) {
  EXPECT_FALSE(attempt_body("[]", JobKind::Chat, 1, kAttempt, {}).ok());
  EXPECT_FALSE(attempt_body("nonsense", JobKind::Execute, 1, kAttempt, {}).ok());
}

}  // namespace
}  // namespace llorch::orchestrator
