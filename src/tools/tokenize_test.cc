#include "tools/tokenize.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

#include "base/file.h"
#include "support/test_paths.h"
#include "tokenizer/load.h"

namespace llorch::tools {
namespace {

std::string model() {
  return test::source_path("tests/golden/tokenizer/chat.tokenizer.json").string();
}

struct Outcome {
  int code;
  std::string output;
};

// The program itself, as a user would start it; both streams.
Outcome run(const std::string& arguments) {
  const std::string command = std::string(LLORCH_TOKENIZE) + " " + arguments + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), count);
  const int status = pclose(pipe);
  return {status >> 8 & 0xFF, output};
}

TEST(Tokenize, ShowsPiecesAndIds) {
  const Outcome result = run("--model " + model() + " 'the water'");
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.output.find('|'), std::string::npos) << result.output;
  EXPECT_NE(result.output.find("tokens: "), std::string::npos) << result.output;
  EXPECT_EQ(result.output.find('\x1B'), std::string::npos) << "colour without a terminal";
}

TEST(Tokenize, DecodesWhatItEncoded) {
  const Outcome ids = run("--model " + model() + " --json 'Hello there 你好'");
  ASSERT_EQ(ids.code, 0) << ids.output;
  const std::string list = json::serialize(
      json::parse(ids.output.substr(0, ids.output.size() - 1)).take().get_object().at("ids"));
  EXPECT_EQ(run("--model " + model() + " --decode '" + list + "'").output, "Hello there 你好\n");
  EXPECT_EQ(run("--model " + model() + " --decode --json '" + list + "'").output,
            "{\"text\":\"Hello there 你好\"}\n");
}

TEST(Tokenize, AnswersEveryLineOfABatch) {
  const test::TempDir folder;
  ASSERT_TRUE(base::write_file_atomically(folder / "in",
                                          "{\"text\":\"the <|im_end|>\"}\nnot json\n{\"txt\":1}\n")
                  .ok());
  const Outcome result = run("--model " + model() + " --batch < " + (folder / "in").string());
  EXPECT_EQ(result.code, 0);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < result.output.size();) {
    const std::size_t end = result.output.find('\n', begin);
    lines.push_back(result.output.substr(begin, end - begin));
    begin = end + 1;
  }
  ASSERT_EQ(lines.size(), 3U) << result.output;
  const json::Value first = json::parse(lines[0]).take();
  EXPECT_EQ(json::view(first.get_object().at("decoded").get_string()), "the <|im_end|>");
  EXPECT_EQ(first.get_object().at("ids_with_special").get_array().size(),
            first.get_object().at("ids").get_array().size() + 1);
  EXPECT_TRUE(json::parse(lines[1]).take().get_object().contains("error"));
  EXPECT_TRUE(json::parse(lines[2]).take().get_object().contains("error"));
}

TEST(Tokenize, RendersATemplateOverABatch) {
  const test::TempDir folder;
  ASSERT_TRUE(base::write_file_atomically(
                  folder / "t.jinja",
                  "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}"
                  "{{ strftime_now(' %Y-%m-%d') }}")
                  .ok());
  ASSERT_TRUE(base::write_file_atomically(
                  folder / "in", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n")
                  .ok());
  const std::string input = " < " + (folder / "in").string();
  const std::string path = (folder / "t.jinja").string();
  const Outcome result = run("--template " + path + " --batch --now 2024-07-26" + input);
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, "{\"output\":\"[user] hi 2024-07-26\"}\n");
  EXPECT_EQ(run("--template " + path + input).code, 2);  // without --batch
  EXPECT_EQ(run("--template " + path + " --batch --now yesterday" + input).code, 1);
  EXPECT_EQ(run("--template /nonexistent --batch" + input).code, 1);
}

TEST(Tokenize, KeepsUsageAndFailureApart) {
  EXPECT_EQ(run("").code, 2);
  EXPECT_EQ(run("--model " + model() + " --nonsense").code, 2);
  EXPECT_EQ(run("--help").code, 0);
  const Outcome missing = run("--model /does/not/exist x");
  EXPECT_EQ(missing.code, 1);
  EXPECT_NE(missing.output.find("/does/not/exist"), std::string::npos);
  EXPECT_EQ(run("--model " + model() + " --decode 1 two").code, 1);
}

TEST(ParseIds, ReadsListsAndRefusesOtherThings) {
  EXPECT_EQ(parse_ids(" [1, 2,3]\n4 ").take(), (std::vector<tokenizer::TokenId>{1, 2, 3, 4}));
  EXPECT_TRUE(parse_ids("").take().empty());
  for (const char* text : {"1 x", "-1", "99999999999", "1.5"})
    EXPECT_FALSE(parse_ids(text).ok()) << text;
}

}  // namespace
}  // namespace llorch::tools
