// Every feature of the language once, against what Python's jinja2 made of the same small templates
// (tests/oracle/compare_templates.py writes the fixture).
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/json.h"
#include "support/test_paths.h"
#include "template/chat_template.h"

namespace llorch::jinja {
namespace {

constexpr std::chrono::local_seconds kFixtureDate{std::chrono::local_days(
    std::chrono::year_month_day(std::chrono::year(2024), std::chrono::July, std::chrono::day(26)))};

std::string text_of(const json::Value& value) {
  return std::string(json::view(value.get_string()));
}

Result<std::string> render(const std::string& source, const json::Value& context) {
  Result<ChatTemplate> parsed = ChatTemplate::parse(source);
  if (!parsed.ok()) return parsed.error();
  RenderOptions options;
  options.now = kFixtureDate;
  Result<MarkedText> rendered = parsed->render(context, options);
  if (!rendered.ok()) return rendered.error();
  return rendered->text;
}

TEST(Features, RenderAsPythonDoes) {
  std::ifstream lines(test::source_path("tests/golden/templates/features.jsonl"));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const json::Value head = json::parse(line).take();
  const json::Object& contexts = head.get_object().at("contexts").get_object();
  std::size_t count = 0;
  for (; std::getline(lines, line); ++count) {
    const json::Value value = json::parse(line).take();
    const json::Object& row = value.get_object();
    const std::string source = text_of(row.at("template"));
    SCOPED_TRACE(text_of(row.at("name")) + ": " + source);
    const Result<std::string> rendered =
        render(source, contexts.at(row.at("context").get_string()));
    if (const json::Value* expected = row.if_contains("output")) {
      EXPECT_EQ(rendered.ok() ? *rendered : rendered.error().message, text_of(*expected));
      continue;
    }
    const std::string error = text_of(row.at("error"));
    EXPECT_FALSE(rendered.ok()) << "expected " << error << ", rendered " << *rendered;
    constexpr std::string_view kRaised = "TemplateError: ";
    if (rendered.ok() || error.rfind(kRaised, 0) != 0) continue;
    EXPECT_EQ(rendered.error().code, ErrorCode::InvalidArgument);
    EXPECT_EQ(rendered.error().message, error.substr(kRaised.size()));
  }
  EXPECT_GT(count, 300U);
}

}  // namespace
}  // namespace llorch::jinja
