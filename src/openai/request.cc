#include "openai/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/utf8.h"
#include "contract/limits.h"
#include "contract/request_body.h"
#include "openai/defaults.h"
#include "openai/field_table.h"

namespace llorch::openai {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int32_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kChatTopLogprobsMax = 20;
constexpr std::int64_t kCompletionLogprobsMax = 5;
constexpr std::size_t kLogitBiasMax = 1024;
constexpr std::size_t kDocumentsMax = 1024;
constexpr double kBiasMax = 100;

using Ids = std::vector<std::int32_t>;

using TextOrIds = std::variant<std::string, Ids>;

// What OpenAI calls prompt or input: a text, several, ids, or several lists of ids.
std::vector<TextOrIds> read_inputs(json::FieldReader& reader, std::string_view field,
                                   std::size_t max_count) {
  std::vector<TextOrIds> inputs;
  const json::Value* value = reader.optional_value(field);
  if (value == nullptr) {
    reader.fail(field, "required", "is required");
    return inputs;
  }
  if (const auto* text = value->if_string()) {
    inputs.emplace_back(std::string(json::view(*text)));
    return inputs;
  }
  const json::Array* array = value->if_array();
  if (array == nullptr || array->empty()) {
    reader.fail(
        field, "string or array",
        "must be a string, or a non-empty array of strings, token ids or arrays of token ids");
    return inputs;
  }
  if (std::optional<Ids> ids = contract::to_token_ids(*array)) {
    inputs.emplace_back(std::move(*ids));
    return inputs;
  }
  if (array->size() > max_count) {
    reader.fail(field, fmt::format("at most {}", max_count),
                fmt::format("has {} entries, more than {}", array->size(), max_count));
    return inputs;
  }
  for (const json::Value& entry : *array) {
    std::optional<Ids> ids =
        entry.is_array() ? contract::to_token_ids(entry.get_array()) : std::nullopt;
    if (entry.is_string()) {
      inputs.emplace_back(std::string(json::view(entry.get_string())));
    } else if (ids && !ids->empty()) {
      inputs.emplace_back(std::move(*ids));
    } else {
      reader.fail(field, "string or array",
                  "must hold strings, token ids or non-empty arrays of token ids, not a mixture");
      return {};
    }
  }
  return inputs;
}

void check_not_empty(json::FieldReader& reader, std::string_view field,
                     const std::vector<TextOrIds>& inputs) {
  for (const TextOrIds& input : inputs) {
    const auto* text = std::get_if<std::string>(&input);
    if (text == nullptr) continue;
    // How much is too much is a question of tokens, which the worker answers.
    if (!text->empty()) continue;
    reader.fail(field, "not empty", "must not be an empty text");
    return;
  }
}

std::vector<std::string> read_stop(json::FieldReader& reader) {
  const json::Value* value = reader.optional_value("stop");
  if (value == nullptr) return {};
  if (value->is_string()) {
    std::optional<std::string> one = reader.optional_string("stop", {1, contract::kStopBytesMax});
    return one ? std::vector{std::move(*one)} : std::vector<std::string>();
  }
  return reader.optional_strings("stop", contract::kStopStringsMax, {1, contract::kStopBytesMax})
      .value_or(std::vector<std::string>());
}

// Beside the knobs that all of our bodies share (contract/sampling_config.h).
template <class V, class T>
void describe_penalties(V& v, T& settings) {
  v("frequency_penalty", settings.frequency_penalty, {.min = -2, .max = 2});
  v("presence_penalty", settings.presence_penalty, {.min = -2, .max = 2});
}

std::vector<std::pair<std::int32_t, float>> read_logit_bias(json::FieldReader& reader) {
  std::vector<std::pair<std::int32_t, float>> biases;
  const json::Object* object = reader.optional_object("logit_bias");
  if (object == nullptr) return biases;
  if (object->size() > kLogitBiasMax) {
    reader.fail("logit_bias", fmt::format("at most {}", kLogitBiasMax),
                fmt::format("has {} entries, more than {}", object->size(), kLogitBiasMax));
    return biases;
  }
  json::FieldReader nested(*object, "logit_bias.");
  for (const auto& entry : *object) {
    const std::string_view key = json::view(entry.key());
    std::int32_t id = 0;
    const auto error = std::from_chars(key.data(), key.data() + key.size(), id).ec;
    // "05" would be a second name of 5.
    const bool is_id = error == std::errc() && id >= 0 && key == fmt::format("{}", id);
    if (!is_id) {
      nested.ignore(key);
      nested.fail(base::quoted(key), "token id", "must be named by a token id");
      continue;
    }
    const auto bias = nested.optional_number(key, {.min = -kBiasMax, .max = kBiasMax});
    biases.emplace_back(id, static_cast<float>(bias.value_or(0)));
  }
  reader.add(nested.finish());
  return biases;
}

// Any integer of 64 bits: OpenAI's have a sign, those of /execute have none.
std::optional<std::uint64_t> read_seed(json::FieldReader& reader) {
  const json::Value* value = reader.optional_value("seed");
  if (value == nullptr) return std::nullopt;
  if (const std::uint64_t* number = value->if_uint64()) return *number;
  const double* real = value->if_double();
  if (real == nullptr) {  // an integer with a sign, or no number at all
    const auto number =
        reader.optional_integer("seed", std::numeric_limits<std::int64_t>::min(), kInt64Max);
    if (number) return static_cast<std::uint64_t>(*number);
    return std::nullopt;
  }
  constexpr double kTwoTo63 = 9223372036854775808.0;
  // The least of them is written as an integer: a double of its value may be one below it.
  if (*real > -kTwoTo63 && *real < kTwoTo63 && std::trunc(*real) == *real)
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(*real));
  reader.fail("seed", "-2^63..2^64-1", "must be an integer from -2^63 to 2^64-1");
  return std::nullopt;
}

void read_stream(json::FieldReader& reader, TextBody& request) {
  request.stream = reader.optional_bool("stream").value_or(false);
  const json::Object* options = reader.optional_object("stream_options");
  if (options == nullptr) return;
  if (!request.stream)
    reader.fail("stream_options", "with stream only", "is allowed only when stream is true");
  json::FieldReader nested(*options, "stream_options.");
  request.include_usage = nested.optional_bool("include_usage").value_or(false);
  nested.ignore("include_obfuscation");  // padding against traffic analysis; the answer is the same
  reader.add(nested.finish());
}

// What completions and chat completions share.
void read_common(json::FieldReader& reader, const BodyLimits& limits, TextBody& request) {
  request.model = reader.optional_string("model").value_or("");
  request.n = static_cast<std::size_t>(
      reader.optional_integer("n", 1, static_cast<std::int64_t>(limits.max_choices)).value_or(1));
  GenerationSettings& settings = request.settings;
  contract::SamplingConfig& sampling = settings.sampling;
  contract::read_knobs(reader, sampling);
  sampling.stop = read_stop(reader);
  sampling.seed = read_seed(reader);
  contract::FieldTaker taker(reader);
  describe_penalties(taker, settings);
  settings.logit_bias = read_logit_bias(reader);
  read_stream(reader, request);
}

// What is ours in a body of OpenAI's.
void read_llorch(json::FieldReader& reader, std::size_t num_choices, TextBody& request) {
  const json::Object* ours = reader.optional_object("llorch");
  if (ours == nullptr) return;
  json::FieldReader nested(*ours, "llorch.");
  const json::Array* lists = nested.optional_array("resume_ids");
  if (lists != nullptr && !request.settings.sampling.seed) {
    nested.fail("resume_ids", "with seed only",
                "needs seed: the answer goes on as the seed it began with has it");
  }
  if (lists != nullptr) {
    std::vector<Ids>& resumed = request.resume_ids.emplace();
    std::optional<Ids> flat = contract::to_token_ids(*lists);
    if (flat && num_choices == 1) {
      resumed.push_back(std::move(*flat));
    } else {
      for (const json::Value& list : *lists) {
        const json::Array* array = list.if_array();
        std::optional<Ids> ids = array ? contract::to_token_ids(*array) : std::nullopt;
        if (ids) resumed.push_back(std::move(*ids));
      }
    }
    if (resumed.size() != num_choices || (!flat && lists->size() != num_choices)) {
      nested.fail("resume_ids", "a list of token ids for each choice",
                  fmt::format("must hold {} lists of token ids, one for each choice", num_choices));
    }
  }
  reader.add(nested.finish());
}

std::optional<std::int32_t> read_max_tokens(json::FieldReader& reader, std::string_view field,
                                            std::int64_t least = 1) {
  const auto value = reader.optional_integer(field, least, contract::kMaxTokensMax);
  if (!value) return std::nullopt;
  return static_cast<std::int32_t>(*value);
}

void read_json_schema(json::FieldReader& reader, const json::Object& format, OutputFormat& out) {
  json::FieldReader nested(format, "response_format.");
  nested.ignore("type");
  const json::Object* wrapper = nested.required_object("json_schema");
  if (wrapper != nullptr) {
    json::FieldReader inner(*wrapper, "response_format.json_schema.");
    inner.required_string("name");
    inner.optional_string("description");
    inner.optional_bool("strict");  // the schema always holds
    const json::Object* schema = inner.required_object("schema");
    if (schema != nullptr) out.schema = *schema;
    nested.add(inner.finish());
  }
  reader.add(nested.finish());
}

OutputFormat read_response_format(json::FieldReader& reader) {
  OutputFormat out;
  const json::Object* format = reader.optional_object("response_format");
  if (format == nullptr) return out;
  const json::Value* type = format->if_contains("type");
  const std::string_view name =
      type != nullptr && type->is_string() ? json::view(type->get_string()) : std::string_view();
  if (name == "json_schema") {
    out.kind = OutputFormat::Kind::JsonSchema;
    read_json_schema(reader, *format, out);
    return out;
  }
  if (name == "json_object") {
    out.kind = OutputFormat::Kind::JsonObject;
  } else if (name != "text") {
    reader.fail("response_format.type", "known type",
                "must be \"text\", \"json_object\" or \"json_schema\"");
    return out;
  }
  json::FieldReader nested(*format, "response_format.");
  nested.ignore("type");
  reader.add(nested.finish());
  return out;
}

// What else the template is told: documents, and variables of its own.
void read_template_variables(json::FieldReader& reader, json::Object& chat) {
  if (const json::Array* documents = reader.optional_array("documents")) {
    const bool are_objects =
        std::all_of(documents->begin(), documents->end(),
                    [](const json::Value& document) { return document.is_object(); });
    if (!are_objects || documents->size() > kDocumentsMax) {
      reader.fail("documents", fmt::format("at most {} objects", kDocumentsMax),
                  fmt::format("must be a list of at most {} objects, as the model's chat template "
                              "wants them ({{\"title\":…,\"text\":…}})",
                              kDocumentsMax));
    } else if (!documents->empty()) {
      chat["documents"] = *documents;
    }
  }
  const json::Object* variables = reader.optional_object("chat_template_kwargs");
  if (variables == nullptr) return;
  for (const auto& variable : *variables) {
    const std::string_view name = json::view(variable.key());
    static constexpr std::string_view kTaken[] = {"messages", "tools", "documents", "bos_token",
                                                  "eos_token"};
    if (std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken)) {
      reader.fail("chat_template_kwargs", "variables of the template",
                  fmt::format("may not set {}: that has a field of its own or belongs to the model",
                              base::quoted(name)));
      continue;
    }
    chat[variable.key()] = variable.value();
  }
}

void read_chat_logprobs(json::FieldReader& reader, GenerationSettings& settings) {
  const bool wanted = reader.optional_bool("logprobs").value_or(false);
  const auto top = reader.optional_integer("top_logprobs", 0, kChatTopLogprobsMax);
  if (top && !wanted)
    reader.fail("top_logprobs", "with logprobs only", "is allowed only when logprobs is true");
  if (wanted) settings.top_logprobs = static_cast<std::int32_t>(top.value_or(0));
}

Prompt to_prompt(TextOrIds input) {
  Prompt prompt;
  if (auto* text = std::get_if<std::string>(&input)) {
    prompt.text = std::move(*text);
  } else {
    prompt.kind = Prompt::Kind::Ids;
    prompt.ids = std::move(std::get<Ids>(input));
  }
  return prompt;
}

}  // namespace

std::string tell_too_many_choices(std::size_t choices, std::size_t max_choices) {
  return fmt::format("asks for {} choices in all (prompts × n), more than {}", choices,
                     max_choices);
}

json::Object settings_schema() {
  contract::SchemaWriter writer(contract::SchemaOf::Request);
  contract::add_knobs_schema(writer);
  const GenerationSettings defaults;
  describe_penalties(writer, defaults);
  return writer.finish();
}

Result<TextBody> read_completion_request(const json::Object& body, const BodyLimits& limits,
                                         std::vector<json::FieldError>& errors) {
  json::FieldReader reader(body);
  TextBody request;
  std::vector<TextOrIds> prompts = read_inputs(reader, "prompt", limits.max_choices);
  check_not_empty(reader, "prompt", prompts);
  read_common(reader, limits, request);
  const std::optional<std::int32_t> max_tokens = read_max_tokens(reader, "max_tokens", 0);
  request.settings.sampling.max_tokens = max_tokens.value_or(kCompletionMaxTokens);
  request.settings.shorten_to_fit = !max_tokens;
  request.echo = reader.optional_bool("echo").value_or(false);
  std::optional<std::string> suffix = reader.optional_string("suffix");
  if (suffix && suffix->empty()) suffix.reset();  // asks for nothing
  if (const auto top = reader.optional_integer("logprobs", 0, kCompletionLogprobsMax)) {
    request.settings.top_logprobs = static_cast<std::int32_t>(*top);
    request.settings.score_prompt = request.echo;
    if (request.echo && suffix) {
      reader.fail("suffix", "not with echo and logprobs",
                  "cannot be combined with echo and logprobs: what the model reads is then not the "
                  "text that is echoed");
    }
  }
  if (prompts.size() * request.n > limits.max_choices) {
    reader.fail("n", fmt::format("at most {} choices", limits.max_choices),
                tell_too_many_choices(prompts.size() * request.n, limits.max_choices));
  }
  read_llorch(reader, prompts.size() * request.n, request);
  apply_treatments(completion_fields(), body, reader);
  errors = reader.finish();
  if (!errors.empty()) return contract::summary_of(errors);
  for (TextOrIds& prompt : prompts) {
    request.prompts.push_back(to_prompt(std::move(prompt)));
    request.prompts.back().suffix = suffix;
  }
  return request;
}

Result<TextBody> read_chat_request(const json::Object& body, const BodyLimits& limits,
                                   std::vector<json::FieldError>& errors) {
  json::FieldReader reader(body);
  TextBody request;
  if (const json::Array* messages = reader.required_array("messages")) {
    if (messages->empty()) reader.fail("messages", "at least 1", "must not be empty");
    request.chat["messages"] = read_messages(*messages, reader);
  }
  request.chat["add_generation_prompt"] = true;
  read_template_variables(reader, request.chat);
  request.tools = read_tools(reader, request.chat);
  read_common(reader, limits, request);
  const auto max_tokens = read_max_tokens(reader, "max_tokens");
  const auto max_completion_tokens = read_max_tokens(reader, "max_completion_tokens");
  if (max_tokens && max_completion_tokens && *max_tokens != *max_completion_tokens) {
    reader.fail("max_tokens", "one of both",
                "and max_completion_tokens mean the same: send one of them");
  }
  request.settings.sampling.max_tokens = max_completion_tokens ? max_completion_tokens : max_tokens;
  if (max_completion_tokens) request.max_tokens_field = "max_completion_tokens";
  read_chat_logprobs(reader, request.settings);
  request.settings.format = read_response_format(reader);
  if (request.tools.is_active() && request.settings.format.kind != OutputFormat::Kind::Text) {
    reader.fail("response_format", "not with tools",
                "cannot be combined with tools, because an answer is either a call or in this "
                "format: set tool_choice to \"none\" or leave one of them out");
  }
  read_llorch(reader, request.n, request);
  apply_treatments(chat_fields(), body, reader);
  errors = reader.finish();
  if (!errors.empty()) return contract::summary_of(errors);
  return request;
}

Result<EmbeddingBody> read_embedding_request(const json::Object& body, const BodyLimits& limits,
                                             std::vector<json::FieldError>& errors) {
  json::FieldReader reader(body);
  EmbeddingBody request;
  request.model = reader.optional_string("model").value_or("");
  request.inputs = read_inputs(reader, "input", limits.max_inputs);
  check_not_empty(reader, "input", request.inputs);
  const std::string format = reader.optional_string("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    reader.fail("encoding_format", "float or base64", "must be \"float\" or \"base64\"");
  request.base64 = format == "base64";
  if (const auto dimensions = reader.optional_integer("dimensions", 1, kInt32Max))
    request.dimensions = static_cast<std::size_t>(*dimensions);
  apply_treatments(embedding_fields(), body, reader);
  errors = reader.finish();
  if (!errors.empty()) return contract::summary_of(errors);
  return request;
}

}  // namespace llorch::openai
