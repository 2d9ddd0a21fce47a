#include "openai/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/utf8.h"

namespace llorch::openai {
namespace {

constexpr std::size_t kToolsMax = 128;
constexpr std::size_t kToolNameMax = 128;
constexpr std::size_t kMistralIdSize = 9;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kToolNameMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '_' || c == '-' || c == '.';
         });
}

// Whether the schema of a call's arguments, where it says a type, lets them be an object.
bool takes_object(const json::Value& parameters) {
  const json::Object* schema = parameters.if_object();
  const json::Value* type = schema != nullptr ? schema->if_contains("type") : nullptr;
  if (type == nullptr) return true;
  const json::Value object("object");
  const json::Array* several = type->if_array();
  return several != nullptr ? std::ranges::find(*several, object) != several->end()
                            : *type == object;
}

std::optional<ToolSpec> read_tool(const json::Value& value, const std::string& where,
                                  json::FieldReader& reader) {
  const json::Object* tool = value.if_object();
  const json::Value* type = tool != nullptr ? tool->if_contains("type") : nullptr;
  const json::Value* function = tool != nullptr ? tool->if_contains("function") : nullptr;
  if (type == nullptr || *type != json::Value("function") || function == nullptr ||
      !function->is_object()) {
    reader.fail(where, "function tool",
                "must be {\"type\":\"function\",\"function\":{…}}: no other kind is supported");
    return std::nullopt;
  }
  json::FieldReader nested(function->get_object(), where + ".function.");
  ToolSpec spec;
  spec.name = nested.required_string("name");
  spec.strict = nested.optional_bool("strict").value_or(false);
  if (const json::Object* parameters = nested.optional_object("parameters"))
    spec.parameters = *parameters;
  if (!takes_object(spec.parameters))
    nested.fail("parameters.type", "object",
                "must be \"object\": a call's arguments are one object, its properties theirs");
  if (!spec.name.empty() && !is_name(spec.name))
    nested.fail("name", "name",
                fmt::format("must have 1..{} letters, digits, '_', '-' or '.'", kToolNameMax));
  nested.ignore_others();
  const std::vector<json::FieldError> errors = nested.finish();
  const bool is_sound = errors.empty();
  reader.add(errors);
  if (!is_sound) return std::nullopt;
  return spec;
}

std::string_view name_of(const json::Value& tool) {
  const json::Object* outer = tool.if_object();
  const json::Value* function = outer != nullptr ? outer->if_contains("function") : nullptr;
  const json::Object* inner = function != nullptr ? function->if_object() : nullptr;
  const json::Value* name = inner != nullptr ? inner->if_contains("name") : nullptr;
  return name != nullptr && name->is_string() ? json::view(name->get_string()) : "";
}

// A call names its tool, so no two may share a name.
bool check_names_differ(const json::Array& tools, json::FieldReader& reader) {
  std::map<std::string_view, std::size_t> first_with;
  bool is_distinct = true;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string_view name = name_of(tools[i]);
    const auto [first, is_new] = first_with.try_emplace(name, i);
    if (is_new || name.empty()) continue;
    is_distinct = false;
    reader.fail(fmt::format("tools[{}].function.name", i), "a name of its own",
                fmt::format("is the name of tools[{}] too: give each tool its own", first->second));
  }
  return is_distinct;
}

// Null: there are none. Nothing: some were refused.
std::optional<std::shared_ptr<const ToolList>> read_list(json::FieldReader& reader,
                                                         json::Object& chat) {
  const json::Array* tools = reader.optional_array("tools");
  if (tools == nullptr || tools->empty()) return nullptr;
  if (tools->size() > kToolsMax) {
    reader.fail("tools", fmt::format("at most {}", kToolsMax),
                fmt::format("has {} entries, more than {}", tools->size(), kToolsMax));
    return std::nullopt;
  }
  auto list = std::make_shared<ToolList>();
  for (std::size_t i = 0; i < tools->size(); ++i) {
    std::optional<ToolSpec> tool = read_tool((*tools)[i], fmt::format("tools[{}]", i), reader);
    if (tool) list->push_back(std::move(*tool));
  }
  const bool is_distinct = check_names_differ(*tools, reader);
  if (!is_distinct) return std::nullopt;
  if (list->size() < tools->size()) return std::nullopt;
  chat["tools"] = *tools;
  return list;
}

bool has_tool(const ToolRequest& request, std::string_view name) {
  return request.tools != nullptr &&
         std::any_of(request.tools->begin(), request.tools->end(),
                     [&](const ToolSpec& tool) { return tool.name == name; });
}

// The name in {"type":"function","function":{"name":…}}.
std::optional<std::string> read_named(const json::Value& value, json::FieldReader& reader) {
  const json::Object* object = value.if_object();
  const json::Value* type = object != nullptr ? object->if_contains("type") : nullptr;
  const json::Value* function = object != nullptr ? object->if_contains("function") : nullptr;
  const json::Object* inner = function != nullptr ? function->if_object() : nullptr;
  const json::Value* name = inner != nullptr ? inner->if_contains("name") : nullptr;
  if (type == nullptr || *type != json::Value("function") || name == nullptr ||
      !name->is_string()) {
    reader.fail("tool_choice", "known choice",
                "must be \"auto\", \"none\", \"required\" or "
                "{\"type\":\"function\",\"function\":{\"name\":…}}");
    return std::nullopt;
  }
  json::FieldReader outer_fields(*object, "tool_choice.");
  json::FieldReader inner_fields(*inner, "tool_choice.function.");
  outer_fields.ignore("type");
  outer_fields.ignore("function");
  inner_fields.ignore("name");
  reader.add(outer_fields.finish());
  reader.add(inner_fields.finish());
  return std::string(json::view(name->get_string()));
}

// `are_sound`: where tools were refused, which there are is not known.
void read_choice(json::FieldReader& reader, bool are_sound, ToolRequest& request) {
  using Choice = ToolRequest::Choice;
  const json::Value* value = reader.optional_value("tool_choice");
  if (value == nullptr) return;
  if (*value == json::Value("auto")) return;
  if (*value == json::Value("none")) {
    request.choice = Choice::None;
    return;
  }
  if (*value == json::Value("required")) {
    request.choice = Choice::Required;
    if (are_sound && request.tools == nullptr)
      reader.fail("tool_choice", "with tools", "is \"required\", but there are no tools");
    return;
  }
  const std::optional<std::string> name = read_named(*value, reader);
  if (!name) return;
  request.choice = Choice::Named;
  request.named = *name;
  if (are_sound && !has_tool(request, request.named)) {
    reader.fail("tool_choice", "one of the tools",
                fmt::format("names {}, which is not among the tools", base::quoted(request.named)));
  }
}

// `count` letters and digits that follow from the text alone.
std::string digest_of(std::string_view text, std::size_t count) {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  constexpr std::uint64_t kPrime = 1099511628211ULL;
  std::uint64_t hash = 14695981039346656037ULL;
  std::string out;
  while (out.size() < count) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
    std::uint64_t left = hash;
    for (int i = 0; i < 9 && out.size() < count; ++i, left /= kDigits.size())
      out += kDigits[left % kDigits.size()];
  }
  return out;
}

bool wants_short_ids(ToolDialect dialect) {
  return dialect == ToolDialect::Mistral || dialect == ToolDialect::MistralArgs;
}

// Ids that were made elsewhere, as a template that insists on nine letters takes them.
void shorten_id(json::Object& object, std::string_view key) {
  json::Value* id = object.if_contains(key);
  if (id == nullptr || !id->is_string()) return;
  const std::string_view text = json::view(id->get_string());
  if (text.size() == kMistralIdSize && is_name(text)) return;
  *id = digest_of(text, kMistralIdSize);
}

json::Object* function_of(json::Value& call) {
  json::Object* object = call.if_object();
  json::Value* function = object != nullptr ? object->if_contains("function") : nullptr;
  return function != nullptr ? function->if_object() : nullptr;
}

std::string text_of_call(const json::Object& function) {
  json::Object call;
  if (const json::Value* name = function.if_contains("name")) call["name"] = *name;
  if (const json::Value* arguments = function.if_contains("arguments"))
    call["parameters"] = *arguments;
  return json::serialize(call);
}

std::string content_of(const json::Object& message) {
  const json::Value* content = message.if_contains("content");
  return content != nullptr && content->is_string() ? std::string(json::view(content->get_string()))
                                                    : std::string();
}

// A template that knows no tools gets calls and results as ordinary turns.
void write_out_turn(json::Object& message) {
  if (message.at("role") == json::Value("tool")) {
    message["role"] = "user";
    message["content"] = "Result of the function call:\n" + content_of(message);
    message.erase("tool_call_id");
    return;
  }
  json::Value* calls = message.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  std::string text = content_of(message);
  for (json::Value& call : calls->get_array()) {
    const json::Object* function = function_of(call);
    if (function == nullptr) continue;
    if (!text.empty()) text += "\n";
    text += text_of_call(*function);
  }
  message["content"] = text;
  message.erase("tool_calls");
}

void adapt_message(json::Object& message, const AnswerStyle& style) {
  if (!style.template_takes_tools && style.dialect == ToolDialect::Json) {
    write_out_turn(message);
    return;
  }
  json::Value* calls = message.if_contains("tool_calls");
  if (wants_short_ids(style.dialect)) shorten_id(message, "tool_call_id");
  if (calls == nullptr || !calls->is_array()) return;
  for (json::Value& call : calls->get_array()) {
    if (wants_short_ids(style.dialect) && call.is_object()) shorten_id(call.get_object(), "id");
    json::Object* function = function_of(call);
    json::Value* arguments = function != nullptr ? function->if_contains("arguments") : nullptr;
    // DeepSeek's templates join the arguments to text.
    if (style.dialect == ToolDialect::DeepSeek && arguments != nullptr && !arguments->is_string())
      *arguments = json::serialize(*arguments);
  }
}

std::string describe(const AnswerStyle& style, const json::Array& tools) {
  const CallForm& form = call_form(style.dialect);
  std::string text =
      "You can call functions. To call one, answer with the call and nothing else, in this form:\n";
  text += fmt::format("{}{}NAME{}{{\"PARAMETER\": VALUE}}{}{}\n", form.opening, form.before,
                      form.middle, form.after, form.closing);
  text += "If no function helps, answer as usual. The functions:";
  for (const json::Value& tool : tools) text += "\n" + json::serialize(tool.at("function"));
  return text;
}

// In front of the first message's content where it has the role, else in a message of its own.
void put_text(json::Array& messages, std::string_view role, const std::string& text) {
  for (json::Value& value : messages) {
    json::Object& message = value.get_object();
    const bool fits = message.at("role") == json::Value(role);
    if (!fits && role == "user") continue;
    if (!fits) break;
    const std::string content = content_of(message);
    message["content"] = role == "system" ? content + "\n\n" + text : text + "\n\n" + content;
    return;
  }
  messages.insert(messages.begin(), json::Object{{"role", role}, {"content", text}});
}

// The system message carries the tools as JSON text.
void put_into_system_message(json::Array& messages, const json::Value& tools) {
  const bool has_system =
      !messages.empty() && messages[0].get_object().at("role") == json::Value("system");
  if (!has_system)
    messages.insert(messages.begin(), json::Object{{"role", "system"}, {"content", ""}});
  messages[0].get_object()["tools"] = json::serialize(tools);
}

json::Value object_schema(const json::Value& parameters) {
  const json::Object* schema = parameters.if_object();
  if (schema == nullptr) {
    return json::Object{
        {"type", "object"}, {"properties", json::Object()}, {"additionalProperties", false}};
  }
  json::Object out = *schema;
  if (!out.contains("type") && !out.contains("$ref") && !out.contains("anyOf"))
    out["type"] = "object";
  return out;
}

// A model that is held to calls may not find the way to their end by itself.
constexpr std::uint32_t kMaxForcedCalls = 16;

OutputFormat format_of(const CallForm& form, const ToolRequest& request) {
  OutputFormat format;
  format.kind = OutputFormat::Kind::ToolCalls;
  if (request.parallel) {
    format.between = form.between;
    format.max_calls = kMaxForcedCalls;
  }
  format.closing = form.closing;
  for (const ToolSpec& tool : *request.tools) {
    if (request.choice == ToolRequest::Choice::Named && tool.name != request.named) continue;
    OutputFormat::Call call;
    call.before = fmt::format("{}{}{}", form.before, tool.name, form.middle);
    call.schema = object_schema(tool.parameters);
    call.after = form.after;
    call.strict = tool.strict;
    format.calls.push_back(std::move(call));
  }
  return format;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_json_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

ToolRequest read_tools(json::FieldReader& reader, json::Object& chat) {
  ToolRequest request;
  std::optional<std::shared_ptr<const ToolList>> list = read_list(reader, chat);
  if (list) request.tools = std::move(*list);
  read_choice(reader, list.has_value(), request);
  request.parallel = reader.optional_bool("parallel_tool_calls").value_or(true);
  if (!request.is_active()) chat.erase("tools");
  return request;
}

bool needs_description(const AnswerStyle& style, const ToolRequest& request) {
  return request.is_active() && !style.template_takes_tools;
}

json::Object adapt_chat(const json::Object& chat, const AnswerStyle& style,
                        const ToolRequest& request, DescribeIn where) {
  json::Object out = chat;
  json::Array& messages = out["messages"].get_array();
  for (json::Value& message : messages) adapt_message(message.get_object(), style);
  if (!request.is_active()) return out;
  if (needs_description(style, request)) {
    const std::string_view role = where == DescribeIn::SystemMessage ? "system" : "user";
    put_text(messages, role, describe(style, out.at("tools").get_array()));
    out.erase("tools");
  } else if (style.tools_in_message) {
    put_into_system_message(messages, out.at("tools"));
    out.erase("tools");
  }
  return out;
}

AnswerPlan plan_answer(const AnswerStyle& style, const ToolRequest& request,
                       std::string_view prompt, bool constrained) {
  AnswerPlan plan;
  ParserSettings& parser = plan.parser;
  const ThinkingMarkers thinking = thinking_markers(style.thinking);
  const bool is_open = !thinking.open.empty() && trimmed(prompt).ends_with(thinking.open);
  parser.special_markers = style.special_markers;
  if (request.is_active()) {
    parser.dialect = style.dialect;
    parser.tools = request.tools;
    if (!request.parallel) parser.max_calls = 1;
  }
  if (request.is_forced()) {
    // What is forced is a call from its first letter: there is nothing to think.
    if (style.dialect == ToolDialect::None) parser.dialect = ToolDialect::Json;
    const CallForm& form = call_form(parser.dialect);
    if (is_open) plan.prompt_end = fmt::format("\n{}\n\n", thinking.close);
    plan.prompt_end += form.opening;
    parser.opening = form.opening;
    parser.calls_only = true;
    plan.format = format_of(form, request);
  } else if (!constrained) {
    parser.thinking = style.thinking;
    parser.begins_thinking = is_open;
  } else if (is_open) {
    plan.prompt_end = fmt::format("\n{}\n\n", thinking.close);
  }
  plan.shows_markers = !parser.is_idle() && !style.special_markers.empty();
  if (!plan.shows_markers) parser.special_markers.clear();
  return plan;
}

std::string call_id(std::string_view answer_id, std::size_t choice, std::size_t call,
                    ToolDialect dialect) {
  const std::string seed = fmt::format("{}/{}/{}", answer_id, choice, call);
  if (wants_short_ids(dialect)) return digest_of(seed, kMistralIdSize);
  return "call_" + digest_of(seed, 24);
}

}  // namespace llorch::openai
