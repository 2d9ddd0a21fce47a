// How a model writes what is more than text: tool calls and thinking. Each family has its own way;
// which one, its chat template tells.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::openai {

enum class ToolDialect : std::uint8_t {
  None,  // the template takes tools, but we do not know how its model calls them
  Json,  // {"name":…,"parameters":…}; also for templates without tools, which we then describe
  Hermes,   // <tool_call>{"name":…,"arguments":…}</tool_call>: Qwen 2.5 and 3, Hermes, minimind
  QwenXml,  // <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
  Llama,  // {"name":…,"parameters":…}, maybe after <|python_tag|>; <function=NAME>{…}</function>
  Mistral,      // [TOOL_CALLS][{"name":…,"arguments":…}]
  MistralArgs,  // [TOOL_CALLS]NAME[ARGS]{…}: later ones
  Phi,          // <|tool_call|>[{"name":…,"arguments":…}]<|/tool_call|>: Phi 4, Granite 3
  Functools,    // functools[{"name":…,"arguments":…}]
  DeepSeek,  // <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>
  Harmony,   // <|channel|>commentary to=functions.NAME<|message|>{…}<|call|>: gpt-oss
};

enum class ThinkingStyle : std::uint8_t {
  None,
  Think,    // <think>…</think>
  Bracket,  // [THINK]…[/THINK]
  Harmony,  // the analysis channel
};

struct AnswerStyle {
  ToolDialect dialect = ToolDialect::Json;
  ThinkingStyle thinking = ThinkingStyle::None;
  bool template_takes_tools = false;  // else we describe them in a system message
  bool tools_in_message = false;      // the template wants them as text within the system message
  // The markers that this vocabulary has as special tokens: seen by the parser, never by clients.
  std::vector<std::string> special_markers;
};

std::string_view dialect_name(ToolDialect dialect);

// By the markers in the template's source; special_markers stays empty. An empty source is a model
// without a template.
AnswerStyle detect_answer_style(std::string_view template_source);

// Every text that may matter to the parser and that some vocabulary has as a special token.
std::span<const std::string_view> known_markers();

// How a call that must be made is written:
//   opening before NAME middle ARGUMENTS after [between before NAME middle ARGUMENTS after]…
//   closing
// `opening` is put at the end of the prompt, the rest is held to by a grammar.
struct CallForm {
  std::string_view opening;
  std::string_view before;
  std::string_view middle;
  std::string_view after;
  std::string_view between;  // empty: one call only
  std::string_view closing;
};
const CallForm& call_form(ToolDialect dialect);

// The markers around thinking; empty without.
struct ThinkingMarkers {
  std::string_view open;
  std::string_view close;
};
ThinkingMarkers thinking_markers(ThinkingStyle style);

}  // namespace llorch::openai
