#include "openai/answer_style.h"

#include <array>

namespace llorch::openai {
namespace {

struct DialectRow {
  ToolDialect dialect;
  std::string_view name;
  std::string_view needs;
  // The template's source holds `needs`, one of `markers`, and not `without` (empty: no matter);
  // the first row that fits counts.
  std::array<std::string_view, 2> markers;
  std::string_view without;
  CallForm form;
};

constexpr CallForm kJsonForm = {
    .opening = "",
    .before = R"({"name": ")",
    .middle = R"(", "parameters": )",
    .after = "}",
    .between = "",
    .closing = "",
};
constexpr CallForm kHermesForm = {
    .opening = "<tool_call>\n",
    .before = R"({"name": ")",
    .middle = R"(", "arguments": )",
    .after = "}",
    .between = "\n</tool_call>\n<tool_call>\n",
    .closing = "\n</tool_call>",
};

constexpr CallForm list_form(std::string_view opening, std::string_view closing) {
  return {.opening = opening,
          .before = R"({"name": ")",
          .middle = R"(", "arguments": )",
          .after = "}",
          .between = ", ",
          .closing = closing};
}

constexpr std::array kDialects = {
    DialectRow{ToolDialect::Harmony,
               "harmony",
               "",
               {"<|channel|>commentary to=", "<|channel|>"},
               "<tool_call>",
               {.opening = "<|channel|>commentary to=functions.",
                .before = "",
                .middle = " <|constrain|>json<|message|>",
                .after = "",
                .between = "",
                .closing = ""}},
    DialectRow{ToolDialect::DeepSeek,
               "deepseek",
               "",
               {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
               "",
               {.opening = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
                .before = "",
                .middle = "<｜tool▁sep｜>",
                .after = "<｜tool▁call▁end｜>",
                .between = "<｜tool▁call▁begin｜>",
                .closing = "<｜tool▁calls▁end｜>"}},
    // The XML form is read where the template writes it; forced calls are JSON in the same frame.
    DialectRow{
        ToolDialect::QwenXml, "qwen-xml", "", {"<parameter=", "<parameter="}, "", kHermesForm},
    DialectRow{ToolDialect::Llama,
               "llama",
               "",
               {"<|python_tag|>", R"({"name": function name, "parameters")"},
               "",
               kJsonForm},
    DialectRow{ToolDialect::MistralArgs,
               "mistral-args",
               "[TOOL_CALLS]",
               {"[ARGS]", "[ARGS]"},
               "",
               {.opening = "[TOOL_CALLS]",
                .before = "",
                .middle = "[ARGS]",
                .after = "",
                .between = "[TOOL_CALLS]",
                .closing = ""}},
    DialectRow{ToolDialect::Mistral,
               "mistral",
               "",
               {"[TOOL_CALLS]", "[TOOL_CALLS]"},
               "",
               list_form("[TOOL_CALLS][", "]")},
    DialectRow{ToolDialect::Phi,
               "phi",
               "",
               {"<|tool_call|>", "<|/tool|>"},
               "",
               list_form("<|tool_call|>[", "]")},
    DialectRow{ToolDialect::Functools,
               "functools",
               "",
               {"functools", "functools"},
               "",
               list_form("functools[", "]")},
    // Other families use the same tag around forms of their own: <arg_key>, <invoke>.
    DialectRow{ToolDialect::Hermes,
               "hermes",
               "<tool_call>",
               {R"(arguments")", R"(arguments\")"},
               "<arg_key>",
               kHermesForm},
};

constexpr std::array kMarkers = {
    std::string_view("<tool_call>"),
    std::string_view("</tool_call>"),
    std::string_view("<|python_tag|>"),
    std::string_view("[TOOL_CALLS]"),
    std::string_view("[ARGS]"),
    std::string_view("[CALL_ID]"),
    std::string_view("<|tool_call|>"),
    std::string_view("<|/tool_call|>"),
    std::string_view("<｜tool▁calls▁begin｜>"),
    std::string_view("<｜tool▁calls▁end｜>"),
    std::string_view("<｜tool▁call▁begin｜>"),
    std::string_view("<｜tool▁call▁end｜>"),
    std::string_view("<｜tool▁sep｜>"),
    std::string_view("<|channel|>"),
    std::string_view("<|message|>"),
    std::string_view("<|constrain|>"),
    std::string_view("<|start|>"),
    std::string_view("<|end|>"),
    std::string_view("<|call|>"),
    std::string_view("<|return|>"),
    std::string_view("<think>"),
    std::string_view("</think>"),
    std::string_view("[THINK]"),
    std::string_view("[/THINK]"),
};

bool has(std::string_view source, std::string_view text) {
  return source.find(text) != std::string_view::npos;
}

// "tools" as a word: the template's variable, not "tools_prompt" or "custom_tools".
bool takes_tools(std::string_view source) {
  const auto is_word = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  constexpr std::string_view kWord = "tools";
  for (std::size_t at = source.find(kWord); at != std::string_view::npos;
       at = source.find(kWord, at + 1)) {
    const std::size_t end = at + kWord.size();
    const bool begins = at == 0 || !is_word(source[at - 1]);
    const bool ends = end == source.size() || !is_word(source[end]);
    if (begins && ends) return true;
  }
  return false;
}

ThinkingStyle thinking_of(std::string_view source) {
  if (has(source, "<|channel|>")) return ThinkingStyle::Harmony;
  if (has(source, "[THINK]")) return ThinkingStyle::Bracket;
  if (has(source, "<think>") || has(source, "</think>")) return ThinkingStyle::Think;
  return ThinkingStyle::None;
}

}  // namespace

std::string_view dialect_name(ToolDialect dialect) {
  if (dialect == ToolDialect::None) return "unknown";
  for (const DialectRow& row : kDialects) {
    if (row.dialect == dialect) return row.name;
  }
  return "json";
}

AnswerStyle detect_answer_style(std::string_view source) {
  AnswerStyle style;
  style.thinking = thinking_of(source);
  style.template_takes_tools = takes_tools(source);
  style.tools_in_message = has(source, "message['tools']") || has(source, "message.tools");
  style.dialect = style.template_takes_tools ? ToolDialect::None : ToolDialect::Json;
  for (const DialectRow& row : kDialects) {
    const bool is_marked = has(source, row.markers[0]) || has(source, row.markers[1]);
    if (!is_marked || !has(source, row.needs)) continue;
    if (!row.without.empty() && has(source, row.without)) continue;
    style.dialect = row.dialect;
    break;
  }
  return style;
}

std::span<const std::string_view> known_markers() {
  return kMarkers;
}

const CallForm& call_form(ToolDialect dialect) {
  for (const DialectRow& row : kDialects) {
    if (row.dialect == dialect) return row.form;
  }
  return kJsonForm;
}

ThinkingMarkers thinking_markers(ThinkingStyle style) {
  if (style == ThinkingStyle::Think) return {"<think>", "</think>"};
  if (style == ThinkingStyle::Bracket) return {"[THINK]", "[/THINK]"};
  return {};
}

}  // namespace llorch::openai
