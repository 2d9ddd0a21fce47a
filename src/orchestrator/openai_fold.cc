#include "orchestrator/openai_fold.h"

#include <utility>

namespace llorch::orchestrator {
namespace {

constexpr std::size_t kCallsMax = 1024;

Error not_a_chunk(std::string_view why) {
  return {ErrorCode::Corrupt, "a worker's chunk cannot be read: " + std::string(why)};
}

void append_text(const json::Object& object, std::string_view name, std::string& text) {
  const json::Value* piece = object.if_contains(name);
  if (piece != nullptr && piece->is_string()) text += json::view(piece->get_string());
}

}  // namespace

AnswerFold::AnswerFold(fleet::JobKind kind, std::uint32_t choices, bool with_logprobs)
    : is_chat_(kind == fleet::JobKind::Chat), choices_(choices) {
  if (!with_logprobs) return;
  for (Choice& choice : choices_) {
    choice.logprobs = is_chat_ ? json::Object{{"content", json::Array()}, {"refusal", nullptr}}
                               : json::Object{{"tokens", json::Array()},
                                              {"token_logprobs", json::Array()},
                                              {"top_logprobs", json::Array()},
                                              {"text_offset", json::Array()}};
  }
}

Status AnswerFold::add(std::string_view events) {
  FrameReader reader;
  std::vector<Frame> frames;
  if (Status read = reader.feed(events, frames); !read.ok()) return read;
  for (const Frame& frame : frames) {
    if (frame.data == "[DONE]") continue;
    const Result<json::Value> parsed = json::parse(frame.data);
    if (!parsed.ok()) return not_a_chunk(parsed.error().message);
    const json::Object* chunk = parsed->if_object();
    const json::Value* list = chunk == nullptr ? nullptr : chunk->if_contains("choices");
    if (list == nullptr || !list->is_array()) return not_a_chunk("it has no choices");
    if (head_.empty()) take_head(*chunk);
    if (const json::Value* usage = chunk->if_contains("usage"); usage && usage->is_object())
      usage_ = *usage;
    for (const json::Value& entry : list->get_array()) {
      if (!entry.is_object()) return not_a_chunk("a choice is no object");
      if (Status taken = take_choice(entry.get_object()); !taken.ok()) return taken;
    }
  }
  return ok_status();
}

void AnswerFold::take_head(const json::Object& chunk) {
  for (const auto& [name, value] : chunk) {
    if (name == "choices") break;
    head_[name] = value;
  }
  head_["object"] = is_chat_ ? "chat.completion" : "text_completion";
}

Status AnswerFold::take_choice(const json::Object& entry) {
  const json::Value* index = entry.if_contains("index");
  const std::int64_t* number = index == nullptr ? nullptr : index->if_int64();
  if (number == nullptr || *number < 0 || static_cast<std::size_t>(*number) >= choices_.size())
    return not_a_chunk("it is of no choice that was asked for");
  Choice& choice = choices_[static_cast<std::size_t>(*number)];
  append_text(entry, "text", choice.text);
  if (const json::Value* delta = entry.if_contains("delta"); delta && delta->is_object()) {
    append_text(delta->get_object(), "content", choice.text);
    append_text(delta->get_object(), "reasoning_content", choice.reasoning);
    const json::Value* calls = delta->get_object().if_contains("tool_calls");
    if (calls != nullptr && calls->is_array()) take_calls(calls->get_array(), choice);
  }
  if (const json::Value* logprobs = entry.if_contains("logprobs")) take_logprobs(*logprobs, choice);
  if (const json::Value* reason = entry.if_contains("finish_reason"); reason && !reason->is_null())
    choice.finish_reason = *reason;
  return ok_status();
}

void AnswerFold::take_calls(const json::Array& calls, Choice& choice) {
  for (const json::Value& each : calls) {
    const json::Object* call = each.if_object();
    const json::Value* index = call == nullptr ? nullptr : call->if_contains("index");
    const std::int64_t* number = index == nullptr ? nullptr : index->if_int64();
    if (number == nullptr || *number < 0 || static_cast<std::size_t>(*number) >= kCallsMax)
      continue;
    const auto at = static_cast<std::size_t>(*number);
    if (choice.calls.size() <= at) choice.calls.resize(at + 1);
    Call& into = choice.calls[at];
    if (const json::Value* id = call->if_contains("id")) into.id = *id;
    if (const json::Value* type = call->if_contains("type")) into.type = *type;
    const json::Value* function = call->if_contains("function");
    if (function == nullptr || !function->is_object()) continue;
    append_text(function->get_object(), "name", into.name);
    append_text(function->get_object(), "arguments", into.arguments);
  }
}

// Lists are put together; whatever else is there stays as it came first.
void AnswerFold::take_logprobs(const json::Value& logprobs, Choice& choice) const {
  if (!logprobs.is_object()) return;
  if (!choice.logprobs.is_object()) {
    choice.logprobs = logprobs;
    return;
  }
  json::Object& all = choice.logprobs.get_object();
  for (const auto& [name, value] : logprobs.get_object()) {
    json::Value* known = all.if_contains(name);
    if (known == nullptr) {
      all[name] = value;
    } else if (known->is_array() && value.is_array()) {
      for (const json::Value& each : value.get_array()) known->get_array().push_back(each);
    }
  }
}

json::Object AnswerFold::message_of(const Choice& choice) {
  json::Object message{{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
  if (choice.calls.empty()) return message;
  if (choice.text.empty()) message["content"] = nullptr;
  json::Array calls;
  for (const Call& call : choice.calls) {
    calls.push_back(json::Object{
        {"id", call.id},
        {"type", call.type},
        {"function", json::Object{{"name", call.name}, {"arguments", call.arguments}}}});
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

json::Object AnswerFold::whole() const {
  json::Array list;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    json::Object entry{{"index", i}};
    if (is_chat_) {
      entry["message"] = message_of(choice);
    } else {
      entry["text"] = choice.text;
    }
    entry["logprobs"] = choice.logprobs;
    entry["finish_reason"] = choice.finish_reason;
    list.push_back(std::move(entry));
  }
  json::Object object = head_;
  object["choices"] = std::move(list);
  object["usage"] = usage_;
  return object;
}

}  // namespace llorch::orchestrator
