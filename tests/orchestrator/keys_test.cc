// Keys as their users have them: what they are refused, what is written down about them, and that
// nobody changes that unseen. The real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "fleet_home.h"
#include "support/run_program.h"

namespace llorch::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class KeysOfAFleet : public testing::Test {
 protected:
  ProgramOutcome llorch(std::vector<std::string> words) const {
    return run_program(LLORCH_CLI, std::move(words),
                       {"LLORCH_HOME=" + home.folder().path().string(),
                        "LLORCH_TOKEN=", "LLORCH_ORCHESTRATOR=", "LLORCH_CONFIG="});
  }
  http::Headers add_key(std::vector<std::string> words) const {
    words.insert(words.begin(), {"keys", "add"});
    const ProgramOutcome made = llorch(std::move(words));
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return bearer(made.out.substr(0, made.out.find('\n')));
  }
  static http::Headers bearer(const std::string& key) {
    http::Headers headers;
    headers.add("Authorization", "Bearer " + key);
    return headers;
  }
  static json::Object completion(int max_tokens) {
    return {{"model", "builtin"}, {"prompt", "Once upon a time"}, {"max_tokens", max_tokens}};
  }
  // Number of seconds; 0: there is none.
  static int retry_after(const Answer& answer) {
    return std::stoi(std::string(answer.headers.find("Retry-After").value_or("0")));
  }

  FleetHome home;
};

TEST_F(KeysOfAFleet, RequestsOfAMinuteAreCounted) {
  ASSERT_NO_FATAL_FAILURE(home.start());
  const http::Headers slow = add_key({"slow", "--rate", "1/min"});
  EXPECT_EQ(home.post("/v1/completions", completion(4), slow).status, 200) << home.err();
  for (const char* path : {"/v1/completions", "/v2/tasks"}) {
    const Answer refused = home.post(path, completion(4), slow);
    EXPECT_EQ(refused.status, 429) << path;
    EXPECT_GE(retry_after(refused), 1) << path;
    EXPECT_LE(retry_after(refused), 60) << path;
    EXPECT_THAT(json::serialize(refused.body), HasSubstr("key 'slow' may send 1 requests a minute"))
        << path;
  }
  EXPECT_EQ(home.post("/v1/completions", completion(4)).status, 200) << "nobody else is held back";
}

TEST_F(KeysOfAFleet, TokensOfADayAreReservedAndCounted) {
  ASSERT_NO_FATAL_FAILURE(home.start());
  const http::Headers poor = add_key({"poor", "--tokens-per-day", "60"});
  const Answer never = home.post("/v1/completions", completion(100), poor);
  EXPECT_EQ(never.status, 403) << "it never has so many";
  EXPECT_EQ(retry_after(never), 0);
  EXPECT_THAT(json::serialize(never.body), HasSubstr("more than it ever has"));
  EXPECT_EQ(home.post("/v1/completions", completion(40), poor).status, 200) << home.err();
  const Answer tomorrow = home.post("/v1/completions", completion(40), poor);
  EXPECT_EQ(tomorrow.status, 429) << json::serialize(tomorrow.body);
  EXPECT_GE(retry_after(tomorrow), 1);
  EXPECT_LE(retry_after(tomorrow), 86'400);
  EXPECT_THAT(json::serialize(tomorrow.body), HasSubstr("key 'poor' has 60 tokens a day, "));
  const ProgramOutcome listed = llorch({"keys", "list", "--json"});
  const Result<json::Value> keys = json::parse(listed.out);
  ASSERT_TRUE(keys.ok()) << listed.out << listed.err;
  const std::int64_t used = keys->at("keys").at(0).at("tokens_today").as_int64();
  EXPECT_GE(used, 40);
  EXPECT_LE(used, 60);
}

TEST_F(KeysOfAFleet, WhatIsDoneWithThemIsWrittenDownAndAChangeOfThatIsSeen) {
  ASSERT_NO_FATAL_FAILURE(home.start());
  const http::Headers key = add_key({"laptop"});
  EXPECT_EQ(home.post("/v1/completions", completion(4), key).status, 200) << home.err();
  EXPECT_EQ(home.get("/v1/models", bearer("llk_0123456789abcdef_no-such-key-as-this")).status, 401);
  EXPECT_EQ(llorch({"keys", "revoke", "laptop"}).exit_code, 0);
  EXPECT_EQ(home.get("/v1/models", key).status, 401);

  const auto list = [&] {
    std::vector<std::string> acts;
    std::istringstream lines(llorch({"audit", "list", "--json"}).out);
    for (std::string text; std::getline(lines, text);) {
      const Result<json::Value> line = json::parse(text);
      EXPECT_TRUE(line.ok()) << text;
      if (!line.ok()) continue;
      const std::string object(line->at("object").as_string());
      acts.push_back(std::string(line->at("action").as_string()) + " " +
                     object.substr(object.find(' ') == object.npos ? 0 : object.find(' ') + 1) +
                     " " + std::string(line->at("result").as_string()));
    }
    return acts;
  };
  const std::vector<std::string> acts = list();
  EXPECT_EQ(std::count(acts.begin(), acts.end(), "key.add laptop ok"), 1);
  EXPECT_EQ(std::count(acts.begin(), acts.end(), "key.revoke laptop ok"), 1);
  EXPECT_EQ(
      std::count_if(acts.begin(), acts.end(),
                    [](const std::string& act) { return act.starts_with("request.refused"); }),
      2)
      << ::testing::PrintToString(acts);
  ASSERT_EQ(home.stop(), 0);
  const ProgramOutcome whole = llorch({"audit", "verify"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("whole: "));

  const fs::path file = home.folder() / "audit.jsonl";
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto verify = [&](const std::string& changed) {
    std::ofstream(file, std::ios::trunc) << changed;
    return llorch({"audit", "verify"});
  };
  std::string renamed = text;
  const std::size_t at = renamed.find("laptop");
  ASSERT_NE(at, std::string::npos);
  renamed[at] = 'L';
  const auto number_of = [&text](std::size_t end) {
    return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  };
  const ProgramOutcome changed = verify(renamed);
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_THAT(changed.err, HasSubstr("audit.jsonl, line " + std::to_string(number_of(at)) + ": "));

  const std::size_t last = text.rfind('\n', text.size() - 2) + 1;
  const ProgramOutcome cut = verify(text.substr(0, last));
  EXPECT_EQ(cut.exit_code, 1);
  EXPECT_THAT(cut.err, HasSubstr("the end is missing: lines " + std::to_string(number_of(last))));
  EXPECT_EQ(verify(text).exit_code, 0) << "as it was";
}

}  // namespace
}  // namespace llorch::test
