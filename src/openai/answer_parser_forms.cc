// AnswerParser: the forms of calls that are not JSON in a frame, XML elements and Harmony's
// messages.
#include <algorithm>
#include <array>

#include "openai/answer_parser.h"

namespace llorch::openai {
namespace {

using Kind = AnswerPart::Kind;

constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::size_t kMaxKey = 256;      // bytes of a parameter's name
constexpr std::size_t kMaxHeader = 1024;  // bytes of a message's header

constexpr std::string_view kMessage = "<|message|>";
constexpr std::array kMessageEnds = {std::string_view("<|end|>"), std::string_view("<|call|>"),
                                     std::string_view("<|return|>"), std::string_view("<|start|>"),
                                     std::string_view("<|channel|>")};

constexpr std::array kHeaders = {std::string_view("<|channel|>"), std::string_view("<|start|>"),
                                 std::string_view(" to="), std::string_view("to=")};

// How much of the text's end may become one of the ends.
std::size_t held_at_end(std::string_view text) {
  std::size_t held = 0;
  for (const std::string_view end : kMessageEnds) {
    for (std::size_t size = std::min(text.size(), end.size() - 1); size > held; --size) {
      if (text.ends_with(end.substr(0, size))) held = size;
    }
  }
  return held;
}

std::string_view name_in(std::string_view header) {
  constexpr std::string_view kRecipient = "to=functions.";
  const std::size_t at = header.find(kRecipient);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + kRecipient.size());
  return rest.substr(0, std::min(rest.find_first_of(" <\n\t"), rest.size()));
}

bool is_text_type(const json::Value* schema) {
  const json::Object* object = schema != nullptr ? schema->if_object() : nullptr;
  const json::Value* type = object != nullptr ? object->if_contains("type") : nullptr;
  return type != nullptr && *type == json::Value("string");
}

}  // namespace

// The text between two tags as JSON: what the schema calls a string is one; anything else is taken
// for JSON where it is that.
std::string AnswerParser::xml_value(std::string_view key, std::string_view text) const {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  const json::Value* schema = nullptr;
  for (const ToolSpec& tool : *settings_.tools) {
    const json::Object* parameters = tool.parameters.if_object();
    if (tool.name != call_name_ || parameters == nullptr) continue;
    const json::Value* properties = parameters->if_contains("properties");
    if (properties != nullptr && properties->is_object())
      schema =
          properties->get_object().if_contains(boost::json::string_view(key.data(), key.size()));
  }
  if (!is_text_type(schema)) {
    if (const Result<json::Value> parsed = json::parse(text); parsed.ok())
      return json::serialize(*parsed);
  }
  return json::serialize(json::Value(boost::json::string_view(text.data(), text.size())));
}

bool AnswerParser::step_xml() {
  const std::size_t space = count_space(buffer_);
  const std::string_view rest = std::string_view(buffer_).substr(space);
  const auto close = [&](std::size_t bytes) {
    emit(Kind::CallArguments, num_xml_ == 0 ? "{}" : "}");
    drop_front(bytes);
    end_call(State::After);
    return true;
  };
  if (rest.starts_with(kFunctionEnd)) return close(space + kFunctionEnd.size());
  if (!rest.starts_with(kParameter)) {
    const bool may_become = kParameter.starts_with(rest) || kFunctionEnd.starts_with(rest);
    if (!may_become) return close(0);  // whatever it is, the call is over
    if (is_final_ && !was_cut_) return close(buffer_.size());
    if (is_final_) buffer_.clear();
    return false;
  }
  const std::string_view element = rest.substr(kParameter.size());
  const std::size_t key_end = element.substr(0, kMaxKey).find('>');
  if (key_end == std::string_view::npos && element.size() >= kMaxKey) return close(0);
  const std::size_t end = key_end == std::string_view::npos
                              ? key_end
                              : element.find(kParameterEnd, std::max(key_end + 1, searched_));
  if (end == std::string_view::npos) {
    searched_ = element.size() - std::min(element.size(), kParameterEnd.size());
    if (is_final_ && !was_cut_) return close(buffer_.size());
    if (is_final_) buffer_.clear();  // half a value has no JSON
    return false;
  }
  const std::string key(element.substr(0, key_end));
  const std::string value = xml_value(key, element.substr(key_end + 1, end - key_end - 1));
  emit(Kind::CallArguments, num_xml_ == 0 ? "{" : ", ");
  emit(Kind::CallArguments, json::serialize(json::Value(key)) + ": " + value);
  ++num_xml_;
  searched_ = 0;
  drop_front(space + kParameter.size() + end + kParameterEnd.size());
  return true;
}

// A message is a header, <|message|>, a body, an end. The header says whom it is for.
bool AnswerParser::step_message() {
  if (in_body_) {
    std::size_t end = std::string::npos;
    for (const std::string_view marker : kMessageEnds) end = std::min(end, buffer_.find(marker));
    const bool is_over = end != std::string::npos;
    if (!is_over) end = buffer_.size() - (is_final_ ? 0 : held_at_end(buffer_));
    emit_front(body_, end);
    if (is_over && body_ == Kind::CallArguments) end_call(State::Message);
    in_body_ = !is_over;
    return is_over;
  }
  if (buffer_.empty()) return false;
  for (const std::string_view marker : kMessageEnds) {
    const bool is_end = marker != "<|start|>" && marker != "<|channel|>";
    if (is_end && std::string_view(buffer_).starts_with(marker)) {
      drop_front(marker.size());
      return true;
    }
    if (!is_final_ && marker.starts_with(buffer_)) return false;
  }
  const std::string_view head = std::string_view(buffer_).substr(0, kMaxHeader);
  const bool may_be_header = std::any_of(
      kHeaders.begin(), kHeaders.end(),
      [&](std::string_view begin) { return head.starts_with(begin) || begin.starts_with(head); });
  const std::size_t header_end = head.find(kMessage);
  if (may_be_header && header_end != std::string_view::npos) return step_header(header_end);
  if (may_be_header && head.size() < kMaxHeader) {
    if (is_final_) buffer_.clear();  // half a header says nothing to people
    return false;
  }
  for (const std::string_view marker : kMessageEnds) {  // of a header that never ends
    if (std::string_view(buffer_).starts_with(marker)) drop_front(marker.size());
  }
  in_body_ = true;
  body_ = Kind::Content;
  return true;
}

bool AnswerParser::step_header(std::size_t header_end) {
  const std::string header = buffer_.substr(0, header_end);
  drop_front(header_end + kMessage.size());
  in_body_ = true;
  const std::string_view name = name_in(header);
  if (!name.empty() && settings_.looks_for_calls() && num_calls_ < settings_.max_calls) {
    body_ = Kind::CallArguments;
    parts_.push_back({Kind::CallBegin, std::string(name), num_calls_});
    ++num_calls_;
  } else {
    const bool is_thought = header.find("analysis") != std::string::npos;
    body_ = is_thought ? Kind::Reasoning : Kind::Content;
  }
  return true;
}

}  // namespace llorch::openai
