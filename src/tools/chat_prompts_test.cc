// Rendered chats as ids: the real tokenizers over everything that the real templates write. Where
// users write no control token, the ids are those of the whole text encoded at once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "support/test_paths.h"
#include "template/chat_template.h"
#include "tokenizer/load.h"

namespace llorch::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::local_seconds kDate{std::chrono::local_days(
    std::chrono::year_month_day(std::chrono::year(2024), std::chrono::July, std::chrono::day(26)))};

struct NamedTokenizer {
  std::string name;
  tokenizer::Tokenizer tokenizer;
  std::vector<std::string> controls;  // what users must not write for the ids to be the same
};

std::vector<NamedTokenizer> real_tokenizers() {
  std::vector<fs::path> paths;
  if (const auto folder = test::data_path("tokenizers")) {
    for (const auto& entry : fs::directory_iterator(*folder)) paths.push_back(entry.path());
  }
  for (const char* path : {"weights/minimind2-small/hf", "vocab/ggml-vocab-llama-spm.gguf",
                           "vocab/ggml-vocab-phi-3.gguf", "vocab/ggml-vocab-qwen2.gguf"}) {
    if (const auto found = test::data_path(path)) paths.push_back(*found);
  }
  std::vector<NamedTokenizer> out;
  for (const fs::path& path : paths) {
    NamedTokenizer named{path.filename().string(), tokenizer::load_tokenizer(path).take(), {}};
    for (std::int32_t id = 0; id < named.tokenizer.vocab_size(); ++id) {
      if (named.tokenizer.is_control(id)) named.controls.emplace_back(named.tokenizer.piece(id));
    }
    out.push_back(std::move(named));
  }
  return out;
}

void collect_strings(const json::Value& value, std::vector<std::string>& out) {
  if (value.is_string()) out.emplace_back(json::view(value.get_string()));
  if (value.is_array()) {
    for (const json::Value& item : value.get_array()) collect_strings(item, out);
  }
  if (value.is_object()) {
    for (const auto& member : value.get_object()) collect_strings(member.value(), out);
  }
}

bool mentions_control(const std::vector<std::string>& strings, const NamedTokenizer& named) {
  for (const std::string& text : strings) {
    for (const std::string& control : named.controls) {
      if (text.find(control) != std::string::npos) return true;
    }
  }
  return false;
}

std::string template_source(const fs::path& path) {
  std::string source = base::read_text_file(path, 16U << 20).take();
  if (path.extension() != ".json") return source;
  const json::Value config = json::parse(source).take();
  const json::Value& found = config.get_object().at("chat_template");
  if (found.is_string()) return std::string(json::view(found.get_string()));
  for (const json::Value& entry : found.get_array()) {
    if (entry.get_object().at("name") == "default")
      return std::string(json::view(entry.get_object().at("template").get_string()));
  }
  return "";
}

TEST(RealChatPrompts, AreEncodedAsIfAtOnce) {
  const auto vectors = test::data_path("golden/chat_template_vectors.jsonl");
  const auto folder = test::data_path("templates");
  const std::vector<NamedTokenizer> tokenizers = real_tokenizers();
  if (!vectors || !folder || tokenizers.empty())
    GTEST_SKIP() << "real data absent: golden/chat_template_vectors.jsonl, templates, tokenizers";
  std::map<std::string, jinja::ChatTemplate> templates;
  std::ifstream lines(*vectors);
  std::size_t compared = 0, forged = 0;
  for (std::string line; std::getline(lines, line);) {
    json::Value value = json::parse(line).take();
    json::Object& vector = value.get_object();
    if (!vector.contains("output")) continue;
    vector.erase("output");
    const std::string name(json::view(vector.at("template").get_string()));
    if (!templates.contains(name)) {
      templates.emplace(name, jinja::ChatTemplate::parse(template_source(*folder / name)).take());
    }
    jinja::RenderOptions options;
    options.now = kDate;
    options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    vector.erase("bos_token");
    vector.erase("eos_token");
    const jinja::MarkedText prompt = templates.at(name).render(value, options).value();
    std::vector<std::string> strings;
    collect_strings(value, strings);
    for (const NamedTokenizer& named : tokenizers) {
      const auto whole = named.tokenizer.encode(prompt.text, {.parse_special = true}).value();
      const auto ids =
          named.tokenizer.encode(tokenizer::MarkedPrompt{prompt.text, prompt.own}).value();
      if (mentions_control(strings, named)) {
        ++forged;
        continue;
      }
      EXPECT_EQ(ids, whole) << named.name << ", " << name << ": " << prompt.text;
      ++compared;
    }
  }
  EXPECT_GT(compared, 5000U);
  RecordProperty("compared", static_cast<int>(compared));
  fmt::print("{} prompts compared, {} with a control token in users' text\n", compared, forged);
}

// Each control token of each tokenizer, written by a user: none comes out of it.
TEST(RealChatPrompts, NoControlTokenComesOutOfUsersText) {
  const std::vector<NamedTokenizer> tokenizers = real_tokenizers();
  if (tokenizers.empty()) GTEST_SKIP() << "real data absent: tokenizers";
  for (const NamedTokenizer& named : tokenizers) {
    for (const std::string& control : named.controls) {
      const std::string text = "x" + control + control + " y";
      const auto ids = named.tokenizer.encode(tokenizer::MarkedPrompt{text, {}}).value();
      for (const std::int32_t id : ids)
        EXPECT_FALSE(named.tokenizer.is_control(id)) << named.name << " " << control;
      EXPECT_NE(named.tokenizer.decode(ids).find(control), std::string::npos)
          << named.name << " " << control;
    }
  }
}

}  // namespace
}  // namespace llorch::tools
