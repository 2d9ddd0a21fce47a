// OpenAI's request bodies → values that a model can be asked with. Strict: all failures at once, a
// field that we do not honour is named.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"
#include "openai/defaults.h"
#include "openai/generation.h"
#include "openai/tools.h"

namespace llorch::openai {

// A completion or a chat completion.
struct TextBody {
  std::string model;            // empty: the one that is here
  std::vector<Prompt> prompts;  // completions; for chat made from `chat`
  json::Object chat;            // the variables of the chat template
  ToolRequest tools;            // of a chat
  ParserSettings parser;        // of the answers to a rendered chat
  GenerationSettings settings;
  std::string max_tokens_field = "max_tokens";  // what the client calls it
  std::size_t n = 1;                            // choices for each prompt
  bool stream = false;
  bool include_usage = false;
  bool echo = false;
  // What each choice has said elsewhere, one list for each of them; with a seed.
  std::optional<std::vector<std::vector<std::int32_t>>> resume_ids;
};

struct EmbeddingBody {
  std::string model;
  std::vector<std::variant<std::string, std::vector<std::int32_t>>> inputs;
  bool base64 = false;
  std::optional<std::size_t> dimensions;
};

struct BodyLimits {
  std::size_t max_choices = kChoicesMax;
  std::size_t max_inputs = 2048;
};

// What is wrong with a field `n` that makes so many answers of the prompts there are.
std::string tell_too_many_choices(std::size_t choices, std::size_t max_choices);

// Failures are InvalidArgument and listed in `errors`.
Result<TextBody> read_completion_request(const json::Object& body, const BodyLimits& limits,
                                         std::vector<json::FieldError>& errors);
Result<TextBody> read_chat_request(const json::Object& body, const BodyLimits& limits,
                                   std::vector<json::FieldError>& errors);
Result<EmbeddingBody> read_embedding_request(const json::Object& body, const BodyLimits& limits,
                                             std::vector<json::FieldError>& errors);

// The JSON Schema of an object with the fields of GenerationSettings that are plain numbers.
json::Object settings_schema();

// The messages of a chat as templates want them: text parts joined, arguments of tool calls as
// objects, "developer" as "system".
json::Array read_messages(const json::Array& messages, json::FieldReader& reader);

}  // namespace llorch::openai
