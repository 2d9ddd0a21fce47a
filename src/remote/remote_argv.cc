#include "remote/remote_argv.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/base64.h"
#include "base/json.h"
#include "base/utf8.h"

namespace llorch::remote {
namespace {

Error refused(std::string message) {
  return {ErrorCode::InvalidArgument, std::move(message)};
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_assignment(std::string_view entry) {
  const std::size_t equals = entry.find('=');
  return equals != std::string_view::npos && equals > 0 &&
         std::all_of(entry.begin(), entry.begin() + static_cast<std::ptrdiff_t>(equals),
                     is_name_character);
}

// The same rules at both ends: what is sent is what is taken.
Status check(const RemoteCommand& command) {
  if (command.words.empty() || command.words.front().empty())
    return refused("a command for another host needs a program");
  for (const auto* texts : {&command.words, &command.environment}) {
    for (const std::string& text : *texts) {
      if (text.find('\0') != std::string::npos)
        return refused("an argument for another host has a NUL byte in it");
      if (!base::is_valid_utf8(text))
        return refused(fmt::format("{} is not UTF-8; rename it, or run the command on that host",
                                   base::quoted(text)));
    }
  }
  for (const std::string& entry : command.environment)
    if (!is_assignment(entry))
      return refused(fmt::format("{} is no NAME=value", base::quoted(entry)));
  return ok_status();
}

json::Array to_json(const std::vector<std::string>& texts) {
  json::Array array;
  for (const std::string& text : texts) array.emplace_back(text);
  return array;
}

std::optional<std::vector<std::string>> to_texts(const json::Value& value) {
  if (!value.is_array()) return std::nullopt;
  std::vector<std::string> texts;
  for (const json::Value& text : value.get_array()) {
    if (!text.is_string()) return std::nullopt;
    texts.emplace_back(json::view(text.get_string()));
  }
  return texts;
}

}  // namespace

Result<std::string> encode_remote(const RemoteCommand& command) {
  if (const Status good = check(command); !good.ok()) return good.error();
  std::string text = base::to_base64(
      json::serialize(json::Array{to_json(command.words), to_json(command.environment)}),
      base::Base64::Url);
  if (text.size() > kMaxEncodedBytes)
    return Error{ErrorCode::TooLarge,
                 fmt::format("the command line is too long for another host: {} bytes encoded, at "
                             "most {}; put long texts into a file over there",
                             text.size(), kMaxEncodedBytes)};
  return text;
}

Result<RemoteCommand> decode_remote(std::string_view text) {
  const Error unknown = refused(
      "this is no command that a llorch of this version wrote; update the older of the two hosts");
  if (text.size() > kMaxEncodedBytes) return unknown;
  const std::optional<std::string> bytes = base::from_base64(text, base::Base64::Url);
  if (!bytes) return unknown;
  const Result<json::Value> value = json::parse(*bytes, {.max_depth = 2});
  if (!value.ok() || !value->is_array() || value->get_array().size() != 2) return unknown;
  std::optional<std::vector<std::string>> words = to_texts(value->get_array()[0]);
  std::optional<std::vector<std::string>> environment = to_texts(value->get_array()[1]);
  if (!words || !environment) return unknown;
  RemoteCommand command{std::move(*words), std::move(*environment)};
  if (const Status good = check(command); !good.ok()) return good.error();
  return command;
}

}  // namespace llorch::remote
