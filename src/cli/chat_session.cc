#include "cli/chat_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/similar_names.h"
#include "base/utf8.h"

namespace llorch::cli {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{64} << 20;
constexpr std::size_t kMessagesMax = 100'000;

constexpr std::array<std::string_view, 9> kCommands = {
    "/help", "/clear", "/system", "/save", "/load", "/regenerate", "/set", "/exit", "/quit"};

constexpr std::string_view kHelp = R"(/help              this
/clear             begin a new conversation (the system's text stays)
/system TEXT       what the model is told first; without TEXT nothing
/regenerate        answer the last message again
/set NAME VALUE    temperature, top_p, top_k, min_p, repetition_penalty, max_tokens, seed;
                   /set alone shows them
/save FILE         write the conversation to a file
/load FILE         go on with one that was saved
/exit              the same as Ctrl-D
A line that ends in \ goes on in the next one, and so does everything from """ to """.
Ctrl-C stops an answer.
)";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

json::Object settings_json(const contract::SamplingConfig& sampling) {
  json::Object object;
  contract::write_sampling(sampling, object);
  object.erase("stop");
  return object;
}

}  // namespace

ChatSession::ChatSession(std::string system, contract::SamplingConfig sampling)
    : system_(std::move(system)), sampling_(std::move(sampling)) {}

std::vector<ChatMessage> ChatSession::messages() const {
  std::vector<ChatMessage> all;
  if (!system_.empty()) all.push_back({"system", system_});
  all.insert(all.end(), messages_.begin(), messages_.end());
  return all;
}

void ChatSession::drop_question() {
  if (!messages_.empty() && messages_.back().role == "user") messages_.pop_back();
}

Result<ChatSession::Effect> ChatSession::run_command(std::string_view line) {
  const std::size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view command = line.substr(0, end);
  const std::string_view arguments = trimmed(line.substr(end));
  if (command == "/help") return text(std::string(kHelp));
  if (command == "/exit" || command == "/quit") return Effect{Effect::Kind::Exit, ""};
  if (command == "/regenerate") return regenerate();
  if (command == "/set") return set(arguments);
  if (command == "/clear") {
    messages_.clear();
    return text("A new conversation.\n");
  }
  if (command == "/system") {
    system_ = arguments;
    return text(system_.empty() ? "No system text.\n" : "System text set.\n");
  }
  if (command == "/save" || command == "/load") {
    if (arguments.empty())
      return Error{ErrorCode::InvalidArgument, fmt::format("{} needs a file's name", command)};
    return command == "/save" ? save(arguments) : load(arguments);
  }
  const std::vector<std::string_view> names(kCommands.begin(), kCommands.end());
  return Error{ErrorCode::InvalidArgument,
               fmt::format("there is no command {}{} (/help shows them)", base::quoted(command),
                           base::did_you_mean(command, names))};
}

Result<ChatSession::Effect> ChatSession::regenerate() {
  if (!messages_.empty() && messages_.back().role == "assistant") messages_.pop_back();
  if (messages_.empty()) return Error{ErrorCode::InvalidArgument, "there is nothing to answer yet"};
  return Effect{Effect::Kind::Ask, ""};
}

Result<ChatSession::Effect> ChatSession::set(std::string_view arguments) {
  json::Object object = settings_json(sampling_);
  if (arguments.empty()) return text(json::serialize(object) + "\n");
  const std::size_t end = std::min(arguments.find_first_of(" \t="), arguments.size());
  const std::string name(arguments.substr(0, end));
  std::string_view value = arguments.substr(end);
  const std::size_t begin = value.find_first_not_of(" \t=");
  value = begin == std::string_view::npos ? std::string_view() : value.substr(begin);
  std::vector<std::string_view> names = {"temperature",        "top_p",      "top_k", "min_p",
                                         "repetition_penalty", "max_tokens", "seed"};
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("there is no setting {}{} (/set shows them)", base::quoted(name),
                             base::did_you_mean(name, names))};
  }
  const Result<json::Value> parsed = json::parse(value);
  if (!parsed.ok() || !parsed->is_number()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: expected a number, found {}", name, base::quoted(value))};
  }
  object[name] = *parsed;
  json::FieldReader reader(object);
  contract::SamplingConfig changed = contract::read_sampling(reader);
  const std::vector<json::FieldError> errors = reader.finish();
  if (!errors.empty())
    return Error{ErrorCode::InvalidArgument, fmt::format("{} {}", name, errors[0].message)};
  changed.stop = sampling_.stop;
  sampling_ = std::move(changed);
  return text(fmt::format("{} is {}\n", name, json::serialize(*parsed)));
}

Result<ChatSession::Effect> ChatSession::save(const std::filesystem::path& file) const {
  json::Array list;
  for (const ChatMessage& message : messages())
    list.push_back(json::Object{{"role", message.role}, {"content", message.content}});
  const std::size_t count = list.size();
  const std::string text_of_file =
      json::serialize(json::Object{{"messages", std::move(list)}}) + "\n";
  if (Status written = base::write_file_atomically(file, text_of_file); !written.ok())
    return written.error();
  return text(fmt::format("{} messages saved to {}\n", count, file.string()));
}

Result<ChatSession::Effect> ChatSession::load(const std::filesystem::path& file) {
  const Result<std::string> content = base::read_text_file(file, kFileBytesMax);
  if (!content.ok()) return content.error();
  const Result<json::Value> value = json::parse(*content);
  if (!value.ok()) return value.error().in(file.string());
  const json::Object* object = value->if_object();
  const json::Value* list = object != nullptr ? object->if_contains("messages") : nullptr;
  const auto is_wrong = [&file](std::string_view what) {
    return Error{ErrorCode::InvalidArgument, fmt::format("{}: {}", file.string(), what)};
  };
  if (list == nullptr || !list->is_array()) return is_wrong("expected {\"messages\":[…]}");
  if (list->get_array().size() > kMessagesMax) return is_wrong("too many messages");
  std::string system;
  std::vector<ChatMessage> messages;
  for (const json::Value& entry : list->get_array()) {
    if (!entry.is_object()) return is_wrong("a message must be an object");
    json::FieldReader reader(entry.get_object());
    ChatMessage message{reader.required_string("role"), reader.required_string("content")};
    if (const auto errors = reader.finish(); !errors.empty())
      return is_wrong(fmt::format("{} {}", errors[0].field, errors[0].message));
    if (message.role == "system" && messages.empty())
      system = message.content;
    else if (message.role == "user" || message.role == "assistant")
      messages.push_back(std::move(message));
    else
      return is_wrong(fmt::format("the role {} is not expected here", base::quoted(message.role)));
  }
  system_ = std::move(system);
  messages_ = std::move(messages);
  return text(fmt::format("{} messages loaded\n", messages_.size()));
}

}  // namespace llorch::cli
