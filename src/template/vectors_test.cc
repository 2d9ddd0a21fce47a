// Real templates against what Python's jinja2 made of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "support/test_paths.h"
#include "template/chat_template.h"

namespace llorch::jinja {
namespace {

constexpr std::chrono::local_seconds kVectorDate{std::chrono::local_days(
    std::chrono::year_month_day(std::chrono::year(2024), std::chrono::July, std::chrono::day(26)))};

std::string text_of(const json::Value& value) {
  return std::string(json::view(value.get_string()));
}

// The template's source, which for a tokenizer_config.json is one of its members.
std::string load_source(const std::filesystem::path& path) {
  std::string source = base::read_text_file(path, 16U << 20).take();
  if (path.extension() != ".json") return source;
  const json::Value config = json::parse(source).take();
  const json::Value& found = config.as_object().at("chat_template");
  if (found.is_string()) return text_of(found);
  for (const json::Value& entry : found.get_array()) {
    if (entry.get_object().at("name") == "default")
      return text_of(entry.get_object().at("template"));
  }
  return "";
}

class Templates {
 public:
  const ChatTemplate& at(const std::filesystem::path& path) {
    const auto known = templates_.find(path.string());
    if (known != templates_.end()) return known->second;
    Result<ChatTemplate> parsed = ChatTemplate::parse(load_source(path));
    EXPECT_TRUE(parsed.ok()) << path << ": " << (parsed.ok() ? "" : parsed.error().message);
    return templates_.emplace(path.string(), parsed.take()).first->second;
  }

 private:
  std::map<std::string, ChatTemplate> templates_;
};

// The message behind Python's "TemplateError: ".
bool is_raised(const std::string& error, std::string& message) {
  constexpr std::string_view kPrefix = "TemplateError: ";
  if (error.rfind(kPrefix, 0) != 0) return false;
  message = error.substr(kPrefix.size());
  return true;
}

// "<…>" and "[…]" that the template has and the conversation has not are the template's own, whole.
void check_marks(const MarkedText& rendered, const std::string& source, const std::string& users,
                 const std::string& name) {
  const std::string_view text = rendered.text;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '<' && text[at] != '[') continue;
    const std::size_t end = text.find_first_of(text[at] == '<' ? "> \n" : "] \n\"'", at);
    if (end == std::string_view::npos || (text[end] != '>' && text[end] != ']')) continue;
    const std::string_view mark = text.substr(at, end + 1 - at);
    if (mark.size() < 3 || users.find(mark) != std::string::npos ||
        source.find(mark) == std::string::npos)
      continue;
    const bool is_own =
        std::any_of(rendered.own.begin(), rendered.own.end(),
                    [&](const base::TextSpan& span) { return span.begin <= at && end < span.end; });
    EXPECT_TRUE(is_own) << name << ": " << mark << " at " << at << " in " << text;
  }
}

void check_vector(const ChatTemplate& chat_template, const std::string& source,
                  const json::Object& vector, const std::string& name) {
  RenderOptions options;
  options.now = kVectorDate;
  options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const Result<MarkedText> rendered = chat_template.render(vector, options);
  if (const json::Value* expected = vector.if_contains("output")) {
    ASSERT_TRUE(rendered.ok()) << name << ": " << rendered.error().message;
    EXPECT_EQ(rendered->text, text_of(*expected)) << name;
    json::Object users = vector;
    users.erase("output");
    users.erase("bos_token");
    users.erase("eos_token");
    check_marks(*rendered, source, json::serialize(users), name);
    return;
  }
  const std::string error = text_of(vector.at("error"));
  ASSERT_FALSE(rendered.ok()) << name << ": expected " << error << "\nrendered " << rendered->text;
  std::string message;
  if (is_raised(error, message)) {
    EXPECT_EQ(rendered.error().code, ErrorCode::InvalidArgument) << name;
    EXPECT_EQ(rendered.error().message, message) << name;
  } else {
    EXPECT_EQ(rendered.error().code, ErrorCode::Corrupt)
        << name << ": " << rendered.error().message;
  }
}

TEST(RealTemplates, RenderAsPythonDoes) {
  const auto vectors = test::data_path("golden/chat_template_vectors.jsonl");
  const auto folder = test::data_path("templates");
  if (!vectors || !folder)
    GTEST_SKIP() << "real data absent: golden/chat_template_vectors.jsonl, templates";
  Templates templates;
  std::ifstream lines(*vectors);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json::Value value = json::parse(line).take();
    const json::Object& vector = value.get_object();
    const std::string name = text_of(vector.at("template"));
    check_vector(templates.at(*folder / name), load_source(*folder / name), vector,
                 name + " " + text_of(vector.at("case")));
  }
  EXPECT_EQ(count, 828U);
}

// A quarter of a megabyte of conversation under the limits that a worker sets: reading it is paid
// for, and no real template comes near the end.
TEST(RealTemplates, LongConversationsAreAffordable) {
  const auto vectors = test::data_path("golden/chat_template_vectors.jsonl");
  const auto folder = test::data_path("templates");
  if (!vectors || !folder)
    GTEST_SKIP() << "real data absent: golden/chat_template_vectors.jsonl, templates";
  json::Array messages;
  std::string words;
  while (words.size() < 12'000) words += "some <b> words </think> of Grüße\n";
  for (int i = 0; i < 21; ++i)
    messages.push_back(
        json::Object{{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", words}});
  const json::Value context(
      json::Object{{"messages", messages}, {"add_generation_prompt", true}, {"tools", nullptr}});
  RenderOptions options;
  options.now = kVectorDate;
  options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  options.limits.max_steps = 8'000'000;
  options.limits.max_output_bytes = std::size_t{8} << 20;
  options.limits.max_work_bytes = std::size_t{64} << 20;
  Templates templates;
  std::set<std::string> names;
  std::ifstream lines(*vectors);
  for (std::string line; std::getline(lines, line);)
    names.insert(text_of(json::parse(line).take().get_object().at("template")));
  for (const std::string& name : names) {
    const Result<MarkedText> rendered = templates.at(*folder / name).render(context, options);
    EXPECT_TRUE(rendered.ok() || rendered.error().code != ErrorCode::TooLarge)
        << name << ": " << rendered.error().message;
  }
  EXPECT_EQ(names.size(), 69U);
}

}  // namespace
}  // namespace llorch::jinja
