#include "openai/tools.h"

#include <gtest/gtest.h>

namespace llorch::openai {
namespace {

TEST(Tools, PhisToolsStandInTheSystemMessage) {
  AnswerStyle style = detect_answer_style("{{ message['tools'] }}<|/tool|>");
  const json::Object context{
      {"messages", json::Array{json::Object{{"role", "user"}, {"content", "x"}}}},
      {"tools", json::Array{1}}};
  ToolRequest request;
  request.tools = std::make_shared<const ToolList>(ToolList{{"f", nullptr}});
  EXPECT_EQ(
      json::serialize(adapt_chat(context, style, request, DescribeIn::SystemMessage)),
      R"({"messages":[{"role":"system","content":"","tools":"[1]"},{"role":"user","content":"x"}]})");
}

TEST(Tools, IdsAreNineLettersWhereTheTemplateInsists) {
  EXPECT_EQ(call_id("chatcmpl-1", 0, 0, ToolDialect::Mistral).size(), 9U);
  EXPECT_NE(call_id("chatcmpl-1", 0, 0, ToolDialect::Hermes),
            call_id("chatcmpl-1", 0, 1, ToolDialect::Hermes));
  const AnswerStyle style = detect_answer_style("{{ tools }}[TOOL_CALLS]");
  const json::Object context{
      {"messages",
       json::Array{json::Object{{"role", "assistant"},
                                {"tool_calls", json::Array{json::Object{{"id", "call_abc"}}}}},
                   json::Object{{"role", "tool"}, {"tool_call_id", "call_abc"}}}}};
  const json::Object out = adapt_chat(context, style, {}, DescribeIn::SystemMessage);
  const json::Value& id = out.at("messages").at(0).at("tool_calls").at(0).at("id");
  EXPECT_EQ(id.get_string().size(), 9U);
  EXPECT_EQ(id, out.at("messages").at(1).at("tool_call_id"));
}

}  // namespace
}  // namespace llorch::openai
