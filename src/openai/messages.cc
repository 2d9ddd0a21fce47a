// The messages of a chat, as OpenAI's clients send them → as templates want them.
#include <fmt/format.h>

#include "openai/field_table.h"
#include "openai/request.h"

namespace llorch::openai {
namespace {

// The text of a message's content; failures are reported under `where`.
json::Value read_content(const json::Value& content, const std::string& where,
                         json::FieldReader& reader) {
  if (content.is_string() || content.is_null()) return content;
  const json::Array* parts = content.if_array();
  if (parts == nullptr) {
    reader.fail(where, "string or array", "must be a string or an array of text parts");
    return nullptr;
  }
  std::string joined;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const json::Object* part = (*parts)[i].if_object();
    const json::Value* type = part != nullptr ? part->if_contains("type") : nullptr;
    const json::Value* text = part != nullptr ? part->if_contains("text") : nullptr;
    if (type == nullptr || *type != json::Value("text") || text == nullptr || !text->is_string()) {
      reader.fail(fmt::format("{}[{}]", where, i), "text part",
                  "must be {\"type\":\"text\",\"text\":…}: this server takes text only");
      return nullptr;
    }
    joined += json::view(text->get_string());
  }
  return json::Value(joined);
}

// OpenAI carries the arguments of a call as JSON text; templates write objects.
json::Value read_tool_calls(const json::Array& calls) {
  json::Array out = calls;
  for (json::Value& call : out) {
    json::Object* object = call.if_object();
    json::Value* function = object != nullptr ? object->if_contains("function") : nullptr;
    json::Object* inner = function != nullptr ? function->if_object() : nullptr;
    json::Value* arguments = inner != nullptr ? inner->if_contains("arguments") : nullptr;
    if (arguments == nullptr || !arguments->is_string()) continue;
    Result<json::Value> parsed = json::parse(json::view(arguments->get_string()));
    if (parsed.ok() && parsed->is_object()) *arguments = parsed.take();
  }
  return out;
}

json::Object read_message(const json::Object& message, const std::string& where,
                          json::FieldReader& outer) {
  json::FieldReader reader(message, where + ".");
  json::Object out;
  std::string role = reader.required_string("role");
  if (role == "developer") role = "system";
  if (!role.empty() && role != "system" && role != "user" && role != "assistant" && role != "tool")
    reader.fail("role", "known role",
                "must be \"developer\", \"system\", \"user\", \"assistant\" or \"tool\"");
  out["role"] = role;
  const json::Array* calls = reader.optional_array("tool_calls");
  const json::Value* content = reader.optional_value("content");
  if (content != nullptr) {
    out["content"] = read_content(*content, where + ".content", outer);
  } else if (role != "assistant") {
    reader.fail("content", "required", "is required");
  } else {
    out["content"] = "";  // templates join it to text
  }
  if (calls != nullptr && !calls->empty()) out["tool_calls"] = read_tool_calls(*calls);
  if (auto thoughts = reader.optional_string("reasoning_content"))
    out["reasoning_content"] = *thoughts;
  if (auto name = reader.optional_string("name")) out["name"] = *name;
  if (auto id = reader.optional_string("tool_call_id")) out["tool_call_id"] = *id;
  apply_treatments(chat_message_fields(), message, reader);
  reader.ignore_others();  // clients keep things of their own here
  outer.add(reader.finish());
  return out;
}

}  // namespace

json::Array read_messages(const json::Array& messages, json::FieldReader& reader) {
  json::Array out;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    const json::Object* message = messages[i].if_object();
    if (message == nullptr) {
      reader.fail(where, "object", "must be an object with role and content");
      continue;
    }
    out.push_back(read_message(*message, where, reader));
  }
  return out;
}

}  // namespace llorch::openai
