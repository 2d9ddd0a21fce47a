#include "openai/call_head.h"

#include <array>

#include "openai/json_scanner.h"

namespace llorch::openai {
namespace {

using Status = CallHead::Status;
using View = std::string_view;

constexpr std::array kFences = {View("```json"), View("```tool_code"), View("```tool_call")};
constexpr std::array kFenceEnds = {View("```")};
constexpr std::array kHermes = {View("<tool_call>")};
constexpr std::array kHermesEnds = {View("</tool_call>")};
constexpr std::array kXml = {View("<tool_call>"), View("<seed:tool_call>"), View("<function=")};
constexpr std::array kXmlEnds = {View("</tool_call>"), View("</seed:tool_call>")};
constexpr std::array kLlama = {View("<|python_tag|>"), View("<function=")};
constexpr std::array kLlamaEnds = {View("</function>")};
constexpr std::array kMistral = {View("[TOOL_CALLS]")};
constexpr std::array kPhi = {View("<|tool_call|>"), View("functools")};
constexpr std::array kPhiEnds = {View("<|/tool_call|>")};
constexpr std::array kFunctools = {View("functools")};
constexpr std::array kDeepSeek = {View("<｜tool▁calls▁begin｜>"), View("<｜tool▁call▁begin｜>")};
constexpr std::array kDeepSeekEnds = {View("```"), View("<｜tool▁call▁end｜>"),
                                      View("<｜tool▁calls▁end｜>")};

bool is_name_char(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '-' || c == '.' || c == ':';
}

CallHead unfinished() {
  CallHead head;
  head.status = Status::Unfinished;
  return head;
}

CallHead of_scan(Scan scan) {
  return scan == Scan::Unfinished ? unfinished() : CallHead{};
}

// Whether `text` goes on with `wanted` at `at`.
Scan follows(std::string_view text, std::size_t at, std::string_view wanted) {
  const std::string_view there = text.substr(at, wanted.size());
  if (there == wanted) return Scan::Whole;
  return wanted.starts_with(there) ? Scan::Unfinished : Scan::Broken;
}

std::string_view read_name(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_name_char(text[end])) ++end;
  return text.substr(at, end - at);
}

// The arguments begin at the next bracket.
CallHead arguments_at(std::string_view text, std::size_t at, std::string_view name) {
  at += count_space(text, at);
  CallHead head;
  head.name = name;
  head.status = Status::Unfinished;
  if (at == text.size()) return head;
  if (text[at] != '{') return {};
  head.status = Status::Call;
  head.end = at;
  return head;
}

// {"name":…,"arguments":…}, members in any order, others among them.
CallHead read_object(std::string_view text, std::size_t at) {
  JsonCursor cursor(text, at);
  if (const Scan open = cursor.take('{'); open != Scan::Whole) return of_scan(open);
  CallHead head;
  std::string_view arguments;
  const auto stop = [&](Scan scan) {
    if (scan == Scan::Broken) return CallHead{};
    head.status = Status::Unfinished;
    return head;
  };
  while (true) {
    cursor.skip_space();
    std::string key;
    if (const Scan read = cursor.read_string(key); read != Scan::Whole) return stop(read);
    if (const Scan colon = cursor.take(':'); colon != Scan::Whole) return stop(colon);
    cursor.skip_space();
    if (cursor.is_at_end()) return stop(Scan::Unfinished);
    const bool is_arguments = key == "arguments" || key == "parameters";
    if (is_arguments && !head.name.empty()) {
      head.status = Status::Call;
      head.end = cursor.at();
      head.in_object = true;
      return head;
    }
    const std::size_t begin = cursor.at();
    const Scan value = key == "name" ? cursor.read_string(head.name) : cursor.skip_value();
    if (value != Scan::Whole) return stop(value);
    if (is_arguments) arguments = text.substr(begin, cursor.at() - begin);
    if (cursor.take(',') == Scan::Whole) continue;
    if (const Scan close = cursor.take('}'); close != Scan::Whole) return stop(close);
    if (head.name.empty()) return {};
    head.status = Status::Call;
    head.end = cursor.at();
    head.kind = CallHead::Arguments::Known;
    head.arguments = arguments.empty() ? std::string_view("{}") : arguments;
    return head;
  }
}

CallHead read_object_or_list(std::string_view text, std::size_t at) {
  at += count_space(text, at);
  if (at == text.size()) return unfinished();
  if (text[at] != '[') return read_object(text, at);
  CallHead head = read_object(text, at + 1);
  head.in_list = true;
  return head;
}

// NAME, maybe [CALL_ID] and an id, maybe [ARGS], {…}
CallHead read_mistral(std::string_view text) {
  std::size_t at = count_space(text);
  if (at == text.size()) return unfinished();
  if (text[at] == '[' || text[at] == '{') return read_object_or_list(text, at);
  const std::string_view name = read_name(text, at);
  if (name.empty()) return {};
  at += name.size();
  for (const std::string_view part : {std::string_view("[CALL_ID]"), std::string_view("[ARGS]")}) {
    const Scan there = follows(text, at, part);
    if (there == Scan::Unfinished) return unfinished();
    if (there == Scan::Broken) continue;
    at += part.size();
    if (part == "[CALL_ID]") at += read_name(text, at).size();
    if (at == text.size()) return unfinished();
  }
  return arguments_at(text, at, name);
}

// NAME>{…} after "<function=", or elements of XML.
CallHead read_function_tag(std::string_view text, std::size_t at, bool is_xml) {
  const std::string_view name = read_name(text, at);
  const std::size_t end = at + name.size();
  if (end == text.size()) return unfinished();
  if (name.empty() || text[end] != '>') return {};
  if (!is_xml) return arguments_at(text, end + 1, name);
  CallHead head;
  head.status = Status::Call;
  head.name = name;
  head.end = end + 1;
  head.kind = CallHead::Arguments::Xml;
  return head;
}

CallHead read_xml(std::string_view text, std::string_view opening) {
  constexpr std::string_view kTag = "<function=";
  if (opening == kTag) return read_function_tag(text, 0, true);
  const std::size_t at = count_space(text);
  if (at < text.size() && text[at] == '{') return read_object(text, at);
  if (const Scan tag = follows(text, at, kTag); tag != Scan::Whole) return of_scan(tag);
  return read_function_tag(text, at + kTag.size(), true);
}

// NAME<sep>{…}, or function<sep>NAME, a fence and {…}
CallHead read_deepseek(std::string_view text, std::string_view opening) {
  constexpr std::string_view kBegin = "<｜tool▁call▁begin｜>";
  constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
  std::size_t at = count_space(text);
  if (opening != kBegin) {
    if (const Scan begin = follows(text, at, kBegin); begin != Scan::Whole) return of_scan(begin);
    at += kBegin.size();
  }
  std::string_view name = read_name(text, at);
  at += name.size();
  if (name.empty()) return at == text.size() ? unfinished() : CallHead{};
  if (const Scan there = follows(text, at, kSeparator); there != Scan::Whole) return of_scan(there);
  at += kSeparator.size();
  if (at == text.size()) return unfinished();
  if (name != "function" || !is_name_char(text[at])) return arguments_at(text, at, name);
  name = read_name(text, at);
  at += name.size();
  at += count_space(text, at);
  constexpr std::string_view kFence = "```json";
  const Scan fence = follows(text, at, kFence);
  if (fence == Scan::Unfinished) return unfinished();
  return arguments_at(text, fence == Scan::Whole ? at + kFence.size() : at, name);
}

}  // namespace

CallSyntax call_syntax(ToolDialect dialect) {
  switch (dialect) {
    case ToolDialect::None:
    case ToolDialect::Harmony:  // has a reader of its own
      return {};
    case ToolDialect::Json:
      return {.openings = kFences, .closings = kFenceEnds, .is_bare = true, .has_fences = true};
    case ToolDialect::Hermes:
      return {.openings = kHermes, .closings = kHermesEnds};
    case ToolDialect::QwenXml:
      return {.openings = kXml, .closings = kXmlEnds};
    case ToolDialect::Llama:
      return {.openings = kLlama, .closings = kLlamaEnds, .is_bare = true};
    case ToolDialect::Mistral:
    case ToolDialect::MistralArgs:
      return {.openings = kMistral};
    case ToolDialect::Phi:
      return {.openings = kPhi, .closings = kPhiEnds};
    case ToolDialect::Functools:
      return {.openings = kFunctools};
    case ToolDialect::DeepSeek:
      return {.openings = kDeepSeek, .closings = kDeepSeekEnds};
  }
  return {};
}

CallHead read_call_head(std::string_view text, ToolDialect dialect, std::string_view opening) {
  if (opening.empty()) return read_object_or_list(text, 0);
  switch (dialect) {
    case ToolDialect::Mistral:
    case ToolDialect::MistralArgs:
      return read_mistral(text);
    case ToolDialect::QwenXml:
      return read_xml(text, opening);
    case ToolDialect::DeepSeek:
      return read_deepseek(text, opening);
    case ToolDialect::Llama:
      if (opening == "<function=") return read_function_tag(text, 0, false);
      return read_object_or_list(text, 0);
    default:
      return read_object_or_list(text, 0);
  }
}

}  // namespace llorch::openai
