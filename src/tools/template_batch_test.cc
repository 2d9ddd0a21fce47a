#include "tools/template_batch.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace llorch::tools {
namespace {

std::string batch(std::string_view source, const std::string& lines) {
  std::istringstream input(lines);
  std::ostringstream output;
  const Status status =
      render_template_batch(source, parse_date("2024-07-26").value(), input, output);
  return status.ok() ? output.str() : "failed: " + status.error().message;
}

TEST(TemplateBatch, WritesOneAnswerPerLine) {
  const std::string_view source =
      "{% if not messages %}{{ raise_exception('no messages') }}{% endif %}"
      "{{ bos_token }}{{ messages[0].content }} {{ strftime_now('%d %b %Y') }}";
  EXPECT_EQ(
      batch(source,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"h\\u00e9\"}],\"bos_token\":\"<s>\"}\n"
            "\n"
            "{\"messages\":[],\"bos_token\":\"<s>\"}\n"),
      "{\"output\":\"<s>h\u00e9 26 Jul 2024\"}\n{\"error\":\"no messages\"}\n");
}

TEST(TemplateBatch, ReportsALineThatIsNoJsonAndGoesOn) {
  const std::string answer = batch("x", "{]\n[]\n{}\n");
  std::istringstream lines(answer);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line.rfind("{\"error\":", 0), 0U) << line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line.rfind("{\"error\":", 0), 0U) << line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "{\"output\":\"x\"}");
}

TEST(TemplateBatch, TakesTheTemplateOutOfATokenizerConfig) {
  EXPECT_EQ(batch("{\"chat_template\": \"a{{ 1 + 1 }}\"}", "{}\n"), "{\"output\":\"a2\"}\n");
  EXPECT_EQ(batch("{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"b\"},"
                  "{\"name\": \"default\", \"template\": \"c\"}]}",
                  "{}\n"),
            "{\"output\":\"c\"}\n");
}

TEST(TemplateBatch, FailsOnATemplateThatCannotBeParsed) {
  EXPECT_EQ(batch("\n{% if %}", "{}\n").rfind("failed: chat template line 2: ", 0), 0U);
}

TEST(ParseDate, ReadsDatesAndTimesAndRefusesTheRest) {
  EXPECT_EQ(parse_date("1970-01-02").value().time_since_epoch().count(), 86400);
  EXPECT_EQ(parse_date("1970-01-01T01:02:03").value().time_since_epoch().count(), 3723);
  for (const std::string_view bad :
       {"", "2024", "2024-13-01", "2024-02-30", "2024/07/26", "-024-07-26", "2024-07-26T25:00:00",
        "2024-07-26 10:00:00", "2024-07-2x"}) {
    EXPECT_FALSE(parse_date(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace llorch::tools
