// Tools of a chat request: how they are read, how the model is told of them in its own way, and
// what its answer must or may hold.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/json_fields.h"
#include "openai/answer_parser.h"
#include "openai/answer_style.h"
#include "openai/generation.h"

namespace llorch::openai {

struct ToolRequest {
  enum class Choice : std::uint8_t { Auto, None, Required, Named };
  std::shared_ptr<const ToolList> tools;  // null without
  Choice choice = Choice::Auto;
  std::string named;
  bool parallel = true;

  bool is_active() const { return tools != nullptr && choice != Choice::None; }
  bool is_forced() const {
    return is_active() && (choice == Choice::Required || choice == Choice::Named);
  }
};

// "tools", "tool_choice" and "parallel_tool_calls". The tools as they came go into `chat`.
ToolRequest read_tools(json::FieldReader& reader, json::Object& chat);

// Where a template takes no tools, a text describes them.
enum class DescribeIn : std::uint8_t { SystemMessage, FirstUserMessage };
bool needs_description(const AnswerStyle& style, const ToolRequest& request);

// The variables of the template as this model's template wants them: tools, calls and results of
// earlier turns.
json::Object adapt_chat(const json::Object& chat, const AnswerStyle& style,
                        const ToolRequest& request, DescribeIn where);

// What is made of the answer to a rendered prompt, and what is to be done for it.
struct AnswerPlan {
  ParserSettings parser;
  bool shows_markers = false;
  std::string prompt_end;              // to be put behind the prompt, as the template's own text
  std::optional<OutputFormat> format;  // where calls must be made
};
// `constrained`: the answer is held to a format of its own.
AnswerPlan plan_answer(const AnswerStyle& style, const ToolRequest& request,
                       std::string_view prompt, bool constrained);

// The id of a call: the same for the same three, and nine letters and digits where the template
// insists on that.
std::string call_id(std::string_view answer_id, std::size_t choice, std::size_t call,
                    ToolDialect dialect);

}  // namespace llorch::openai
