#include "openai/answer_style.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/enum_names.h"
#include "base/file.h"
#include "base/json.h"
#include "support/test_paths.h"

namespace llorch::openai {
namespace {

struct Row {
  std::string_view path;
  std::string_view dialect;
  std::string_view thinking;
  bool takes_tools;
};

// Every template of the test data: how its model calls tools, how it thinks, and whether the
// template itself tells the model of tools.
constexpr Row kRows[] = {
    {"chat_templates/deepseek-coder-v2_16b.jinja", "json", "", false},
    {"chat_templates/deepseek-coder_1.3b.jinja", "json", "", false},
    {"chat_templates/deepseek-r1_8b.jinja", "deepseek", "think", false},
    {"chat_templates/deepseek-r1_latest.jinja", "deepseek", "think", false},
    {"chat_templates/deepseek-v2.5_236b.jinja", "deepseek", "", false},
    {"chat_templates/deepseek-v3.1_latest.jinja", "deepseek", "think", false},
    {"chat_templates/deepseek-v3_671b.jinja", "deepseek", "", false},
    {"chat_templates/gemma2_2b.jinja", "json", "", false},
    {"chat_templates/gemma3_1b.jinja", "json", "", false},
    {"chat_templates/gemma3_270m.jinja", "json", "", false},
    {"chat_templates/llama-guard3_8b.jinja", "json", "", false},
    {"chat_templates/llama-pro_latest.jinja", "json", "", false},
    {"chat_templates/llama2_7b.jinja", "json", "", false},
    {"chat_templates/llama3.2-vision_90b.jinja", "llama", "", true},
    {"chat_templates/llama3.2-vision_latest.jinja", "llama", "", true},
    {"chat_templates/llama3.2_3b.jinja", "llama", "", true},
    {"chat_templates/mistral-large_123b.jinja", "json", "", false},
    {"chat_templates/mistral_7b-instruct-fp16.jinja", "json", "", false},
    {"chat_templates/phi3.5_3.8b.jinja", "json", "", false},
    {"chat_templates/phi3_3.8b.jinja", "json", "", false},
    {"chat_templates/qwen2.5-coder_1.5b.jinja", "hermes", "", true},
    {"chat_templates/qwen3-coder_30b.jinja", "qwen-xml", "", true},
    {"chat_templates/qwen3-next_80b.jinja", "hermes", "think", true},
    {"chat_templates/tinyllama_1.1b.jinja", "json", "", false},
    {"llama.cpp/models/templates/Apertus-8B-Instruct.jinja", "unknown", "", true},
    {"llama.cpp/models/templates/ByteDance-Seed-OSS.jinja", "qwen-xml", "", true},
    {"llama.cpp/models/templates/CohereForAI-c4ai-command-r-plus-tool_use.jinja", "unknown", "",
     true},
    {"llama.cpp/models/templates/CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", "unknown",
     "", true},
    {"llama.cpp/models/templates/GLM-4.6.jinja", "unknown", "think", true},
    {"llama.cpp/models/templates/GLM-4.7-Flash.jinja", "unknown", "think", true},
    {"llama.cpp/models/templates/HuggingFaceTB-SmolLM3-3B.jinja", "json", "think", false},
    {"llama.cpp/models/templates/Kimi-K3.jinja", "unknown", "", true},
    {"llama.cpp/models/templates/LFM2-8B-A1B.jinja", "unknown", "", true},
    {"llama.cpp/models/templates/LFM2.5-8B-A1B.jinja", "unknown", "think", true},
    {"llama.cpp/models/templates/LFM2.5-Instruct.jinja", "unknown", "think", true},
    {"llama.cpp/models/templates/MiMo-VL.jinja", "hermes", "", true},
    {"llama.cpp/models/templates/MiniMax-M1.jinja", "unknown", "", true},
    {"llama.cpp/models/templates/MiniMax-M3.jinja", "unknown", "", true},
    {"llama.cpp/models/templates/Mistral-Small-3.2-24B-Instruct-2506.jinja", "mistral-args", "",
     true},
    {"llama.cpp/models/templates/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.jinja", "qwen-xml", "think",
     true},
    {"llama.cpp/models/templates/NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja", "hermes", "",
     true},
    {"llama.cpp/models/templates/Qwen-QwQ-32B.jinja", "hermes", "think", true},
    {"llama.cpp/models/templates/Qwen-Qwen2.5-7B-Instruct.jinja", "hermes", "", true},
    {"llama.cpp/models/templates/Qwen3-Coder.jinja", "qwen-xml", "", true},
    {"llama.cpp/models/templates/Qwen3.5-4B.jinja", "qwen-xml", "think", true},
    {"llama.cpp/models/templates/StepFun3.5-Flash.jinja", "qwen-xml", "think", true},
    {"llama.cpp/models/templates/deepseek-ai-DeepSeek-V3.2.jinja", "unknown", "think", true},
    {"llama.cpp/models/templates/fireworks-ai-llama-3-firefunction-v2.jinja", "functools", "",
     false},
    {"llama.cpp/models/templates/google-gemma-2-2b-it.jinja", "json", "", false},
    {"llama.cpp/models/templates/google-gemma-4-31B-it-interleaved.jinja", "unknown", "", true},
    {"llama.cpp/models/templates/ibm-granite-granite-3.3-2B-Instruct.jinja", "phi", "think", true},
    {"llama.cpp/models/templates/ibm-granite-granite-4.0.jinja", "hermes", "", true},
    {"llama.cpp/models/templates/llama-cpp-deepseek-r1.jinja", "deepseek", "think", true},
    {"llama.cpp/models/templates/llama-cpp-rwkv-world.jinja", "json", "think", false},
    {"llama.cpp/models/templates/meetkai-functionary-medium-v3.1.jinja", "llama", "", true},
    {"llama.cpp/models/templates/meta-llama-Llama-3.1-8B-Instruct.jinja", "llama", "", true},
    {"llama.cpp/models/templates/meta-llama-Llama-3.2-3B-Instruct.jinja", "llama", "", true},
    {"llama.cpp/models/templates/meta-llama-Llama-3.3-70B-Instruct.jinja", "llama", "", true},
    {"llama.cpp/models/templates/mistralai-Ministral-3-14B-Reasoning-2512.jinja", "mistral-args",
     "brackets", true},
    {"llama.cpp/models/templates/moonshotai-Kimi-K2.jinja", "unknown", "", true},
    {"llama.cpp/models/templates/muse-glimmer.jinja", "unknown", "", true},
    {"llama.cpp/models/templates/openbmb-MiniCPM5-1B.jinja", "unknown", "think", true},
    {"llama.cpp/models/templates/poolside-Laguna-XS-2.1.jinja", "unknown", "think", true},
    {"llama.cpp/models/templates/poolside-Laguna-XS.2.jinja", "unknown", "think", true},
    {"llama.cpp/models/templates/unsloth-mistral-Devstral-Small-2507.jinja", "mistral-args", "",
     true},
    {"tokenizers/gemma3/tokenizer_config.json", "json", "", false},
    {"tokenizers/llama3_1/tokenizer_config.json", "json", "", false},
    {"tokenizers/mistral_nemo/tokenizer_config.json", "mistral", "", true},
    {"tokenizers/qwen2_5/tokenizer_config.json", "hermes", "", true},
};

std::string_view thinking_name(ThinkingStyle style) {
  static constexpr base::EnumNames<ThinkingStyle::Harmony> kNames("", "think", "brackets",
                                                                  "channel");
  return kNames[style];
}

std::string load_source(const std::filesystem::path& path) {
  std::string source = base::read_text_file(path, std::size_t{16} << 20).take();
  if (path.extension() != ".json") return source;
  const json::Value config = json::parse(source).take();
  return std::string(json::view(config.at("chat_template").get_string()));
}

TEST(AnswerStyle, IsKnownForEveryRealTemplate) {
  const auto folder = llorch::test::data_path("templates");
  if (!folder) GTEST_SKIP() << "no templates: set LLORCH_TEST_DATA";
  std::set<std::string> seen;
  for (const Row& row : kRows) {
    const AnswerStyle style = detect_answer_style(load_source(*folder / row.path));
    EXPECT_EQ(dialect_name(style.dialect), row.dialect) << row.path;
    EXPECT_EQ(thinking_name(style.thinking), row.thinking) << row.path;
    EXPECT_EQ(style.template_takes_tools, row.takes_tools) << row.path;
    seen.emplace(row.path);
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(*folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string path = std::filesystem::relative(entry.path(), *folder).string();
    EXPECT_TRUE(seen.contains(path)) << path << " is not in the table of this test";
  }
}

TEST(AnswerStyle, FollowsTheMarkersOfATemplate) {
  const auto dialect = [](std::string_view source) {
    return dialect_name(detect_answer_style(source).dialect);
  };
  EXPECT_EQ(dialect(""), "json");
  EXPECT_EQ(dialect("{{ messages }}"), "json");
  EXPECT_EQ(dialect("{{ tools }}"), "unknown");
  EXPECT_EQ(dialect(R"({{ tools }}<tool_call>\n{\"name\": 1, \"arguments\": 2})"), "hermes");
  EXPECT_EQ(dialect("{{ tools }}<tool_call><arg_key>\"arguments\""), "unknown");
  EXPECT_EQ(dialect("{{ tools }}<tool_call><function=a><parameter=b>"), "qwen-xml");
  EXPECT_EQ(dialect("{{ tools }}<|python_tag|>"), "llama");
  EXPECT_EQ(dialect("{{ tools }}[TOOL_CALLS]["), "mistral");
  EXPECT_EQ(dialect("{{ tools }}[TOOL_CALLS]a[ARGS]"), "mistral-args");
  EXPECT_EQ(dialect("{{ message['tools'] }}<|/tool|>"), "phi");
  EXPECT_EQ(dialect("functools[ {{ tools }}"), "functools");
  EXPECT_EQ(dialect("<｜tool▁calls▁begin｜>"), "deepseek");
  EXPECT_EQ(dialect("{{ tools }}<|channel|>analysis"), "harmony");
  EXPECT_TRUE(detect_answer_style("{{ message['tools'] }}").tools_in_message);
  EXPECT_FALSE(detect_answer_style("{{ tools_prompt }} {{ custom_tools }}").template_takes_tools);
}

}  // namespace
}  // namespace llorch::openai
