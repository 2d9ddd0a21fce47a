// AnswerParser: a model's text → thinking, tool calls and what is left for people to read. Fed
// piece by piece; what comes out does not depend on where the pieces were cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "openai/answer_style.h"
#include "openai/call_head.h"
#include "openai/json_scanner.h"

namespace llorch::openai {

// A function that the model may call.
struct ToolSpec {
  std::string name;
  json::Value parameters;  // a JSON Schema; null when the client gave none
  bool strict = false;     // calls that must be made follow the schema, or the request is refused
};
using ToolList = std::vector<ToolSpec>;

struct AnswerPart {
  enum class Kind : std::uint8_t {
    Content,
    Reasoning,
    CallBegin,      // `text` is the function's name
    CallArguments,  // more of the arguments' JSON text
  };
  Kind kind = Kind::Content;
  std::string text;
  std::size_t call = 0;  // with the last two: which, from 0
  bool operator==(const AnswerPart&) const = default;
};
using AnswerParts = std::vector<AnswerPart>;

struct ParserSettings {
  ToolDialect dialect = ToolDialect::None;
  ThinkingStyle thinking = ThinkingStyle::None;
  std::shared_ptr<const ToolList> tools;  // null or empty: calls are not looked for
  bool begins_thinking = false;           // the prompt has opened the thinking
  std::string opening;                    // of a call, where the prompt has opened one
  bool calls_only = false;  // a grammar lets nothing but calls and their frame through
  std::size_t max_calls = 128;
  std::vector<std::string> special_markers;  // never content

  bool looks_for_calls() const { return tools != nullptr && !tools->empty(); }
  // Nothing to do: all text is content.
  bool is_idle() const { return thinking == ThinkingStyle::None && !looks_for_calls(); }
};

// What only looks like a call comes out as content, unchanged, once that is certain: a call is
// believed when its name has been read and its arguments begin. One answer each; one thread.
class AnswerParser {
 public:
  explicit AnswerParser(ParserSettings settings);

  AnswerParts add(std::string_view text);
  // The answer is over. `was_cut`: by a limit, in the middle of something.
  AnswerParts finish(bool was_cut);

  std::size_t num_calls() const { return num_calls_; }
  // As many calls as were asked for are whole: nothing that follows matters.
  bool is_satisfied() const { return state_ == State::Done; }
  // A call has begun and its arguments are not whole.
  bool is_in_arguments() const { return state_ == State::Arguments || state_ == State::Xml; }

 private:
  enum class State : std::uint8_t {
    Start,
    Thinking,
    Text,
    Head,       // of a call; buffer_ begins with lead_ bytes in front of it
    Arguments,  // of a call, as JSON
    Tail,       // of the object around the arguments
    Xml,        // elements that are arguments
    After,      // a call
    Message,    // Harmony: a header or a body
    Done,
  };

  void run();
  // Each moves on and returns true, or waits for more text. At the end nothing is waited for.
  bool step_start();
  bool step_thinking();
  bool step_text();
  bool step_head();
  bool step_arguments();
  bool step_tail();
  bool step_xml();
  bool step_after();
  bool step_list();
  bool step_message();
  bool step_header(std::size_t header_end);

  void emit(AnswerPart::Kind kind, std::string_view text);
  // Takes bytes off the buffer's front, as a part or for nothing.
  void emit_front(AnswerPart::Kind kind, std::size_t bytes);
  void drop_front(std::size_t bytes) { buffer_.erase(0, bytes); }
  void begin_head(std::size_t lead, std::string_view opening);
  bool begin_bare_head();
  void refuse_head();
  void begin_call(const CallHead& head);
  void end_call(State next);
  bool is_known(std::string_view name) const;
  bool is_special(std::string_view marker) const;
  std::string xml_value(std::string_view key, std::string_view text) const;

  const ParserSettings settings_;
  const CallSyntax syntax_;
  AnswerParts parts_;  // of the call under way
  std::string buffer_;
  State state_ = State::Start;
  bool is_final_ = false;
  bool was_cut_ = false;
  bool is_fresh_ = true;       // no content since the beginning: a bare call may come
  bool strips_space_ = false;  // of what comes next
  std::size_t lead_ = 0;
  std::string opening_;             // of the head under way; empty: a bracket
  bool opening_is_prompt_ = false;  // it never was part of the answer
  bool in_list_ = false;
  bool in_object_ = false;
  BracketScanner scanner_;
  bool began_value_ = false;  // Arguments: something of them was written
  std::size_t searched_ = 0;  // Xml: no end of the element before this
  std::size_t num_xml_ = 0;   // elements so far
  bool in_body_ = false;      // Message
  AnswerPart::Kind body_ = AnswerPart::Kind::Content;
  std::string call_name_;
  std::size_t num_calls_ = 0;
};

}  // namespace llorch::openai
