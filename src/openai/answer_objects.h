// The objects that OpenAI's endpoints answer with, field by field: what writes them and what
// /openapi.json says of them come out of the same descriptions (contract/fields.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "contract/fields.h"

namespace llorch::openai {

using contract::Described;

// A field that always has the same text.
using OneName = std::array<std::string_view, 1>;
inline constexpr OneName kModelObject = {"model"};
inline constexpr OneName kListObject = {"list"};
inline constexpr OneName kEmbeddingObject = {"embedding"};
inline constexpr OneName kCompletionObject = {"text_completion"};
inline constexpr OneName kChatObject = {"chat.completion"};
inline constexpr OneName kChatChunkObject = {"chat.completion.chunk"};
inline constexpr OneName kAssistantRole = {"assistant"};
inline constexpr OneName kFunctionType = {"function"};
inline constexpr std::array<std::string_view, 2> kCompletionEnds = {"stop", "length"};
inline constexpr std::array<std::string_view, 3> kChatEnds = {"stop", "length", "tool_calls"};

// GET /v1/models.
struct Model {
  std::string id;
  std::int64_t created = 0;
  std::string object{kModelObject[0]};
  std::string owned_by = "llama-orch";
};
template <class V, Described<Model> T>
void describe(V& v, T& model) {
  v("id", model.id);
  v("object", model.object, {.names = kModelObject});
  v("created", model.created);
  v("owned_by", model.owned_by);
}

struct ModelList {
  std::vector<Model> data;
  std::string object{kListObject[0]};
};
template <class V, Described<ModelList> T>
void describe(V& v, T& list) {
  v("object", list.object, {.names = kListObject});
  v("data", list.data);
}

struct ErrorText {
  std::string message;
  std::string type;
  std::optional<std::string> param;
  std::optional<std::string> code;
};
template <class V, Described<ErrorText> T>
void describe(V& v, T& error) {
  v("message", error.message);
  v("type", error.type);
  v("param", error.param, {.null_when_absent = true});
  v("code", error.code, {.null_when_absent = true});
}

struct ErrorObject {
  ErrorText error;
};
template <class V, Described<ErrorObject> T>
void describe(V& v, T& object) {
  v("error", object.error);
}

struct PromptDetails {
  std::int64_t cached_tokens = 0;
};
template <class V, Described<PromptDetails> T>
void describe(V& v, T& details) {
  v("cached_tokens", details.cached_tokens);
}

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  PromptDetails prompt;
};
template <class V, Described<Usage> T>
void describe(V& v, T& usage) {
  v("prompt_tokens", usage.prompt_tokens);
  v("completion_tokens", usage.completion_tokens);
  v.derived("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  v("prompt_tokens_details", usage.prompt);
}
// In a stream null everywhere but in the last chunk, where it was asked for.
using ChunkUsage = std::variant<std::nullptr_t, Usage>;

struct ChunkIds {
  std::vector<std::int32_t> ids;
};
template <class V, Described<ChunkIds> T>
void describe(V& v, T& told) {
  v("ids", told.ids);
}
inline constexpr contract::FieldRule kIdsRule{
    .doc = "With X-Llorch-Ids: 1: all ids of the choice since its chunk before that had any."};

// The older style of log-probabilities: four lists side by side. Null stands where nothing is
// before a token to judge it by.
struct CompletionLogprobs {
  using Top = std::vector<std::pair<std::string, double>>;  // by the tokens' texts

  std::vector<std::string> tokens;
  std::vector<std::optional<double>> token_logprobs;
  std::vector<std::optional<Top>> top_logprobs;
  std::vector<std::size_t> text_offset;
};
template <class V, Described<CompletionLogprobs> T>
void describe(V& v, T& logprobs) {
  v("tokens", logprobs.tokens);
  v("token_logprobs", logprobs.token_logprobs);
  v("top_logprobs", logprobs.top_logprobs);
  v("text_offset", logprobs.text_offset);
}

struct TokenLogprob {
  std::string token;
  double logprob = 0;
  std::vector<int> bytes;
};
template <class V, Described<TokenLogprob> T>
void describe(V& v, T& token) {
  v("token", token.token);
  v("logprob", token.logprob);
  v("bytes", token.bytes);
}

struct ChosenToken {
  TokenLogprob token;
  std::vector<TokenLogprob> top;
};
template <class V, Described<ChosenToken> T>
void describe(V& v, T& chosen) {
  describe(v, chosen.token);
  v("top_logprobs", chosen.top);
}

struct ChatLogprobs {
  std::vector<ChosenToken> content;
  std::nullptr_t refusal = nullptr;
};
template <class V, Described<ChatLogprobs> T>
void describe(V& v, T& logprobs) {
  v("content", logprobs.content);
  v("refusal", logprobs.refusal);
}

// What all objects of one answer begin with.
struct ObjectHead {
  std::string id;  // "chatcmpl-…", "cmpl-…"
  std::int64_t created = 0;
  std::string model;
  std::string fingerprint;
};
template <class V, class Head>
void describe_head(V& v, Head& head, const OneName& object) {
  v("id", head.id);
  v("object", std::string(object[0]), {.names = object});
  v("created", head.created);
  v("model", head.model);
  v("system_fingerprint", head.fingerprint);
}

// A piece of a stream, of either style.
template <class V, class Chunk>
void describe_chunk(V& v, Chunk& chunk, const OneName& object) {
  describe_head(v, chunk.head, object);
  v("choices", chunk.choices);
  v("usage", chunk.usage);
  v("llorch", chunk.told, kIdsRule);  // the last one: relays look for it from behind
}

struct CompletionChoice {
  std::size_t index = 0;
  std::string text;
  std::optional<CompletionLogprobs> logprobs;
  std::optional<std::string> finish_reason;
};
template <class V, Described<CompletionChoice> T>
void describe(V& v, T& choice) {
  v("index", choice.index);
  v("text", choice.text);
  v("logprobs", choice.logprobs, {.null_when_absent = true});
  v("finish_reason", choice.finish_reason, {.names = kCompletionEnds, .null_when_absent = true});
}

// Whole or a chunk: the same object.
struct Completion {
  ObjectHead head;
  std::vector<CompletionChoice> choices;
  std::optional<ChunkUsage> usage;
  std::optional<ChunkIds> told;
};
template <class V, Described<Completion> T>
void describe(V& v, T& completion) {
  describe_chunk(v, completion, kCompletionObject);
}

struct CallFunction {
  std::string name;
  std::string arguments;
};
template <class V, Described<CallFunction> T>
void describe(V& v, T& function) {
  v("name", function.name);
  v("arguments", function.arguments);
}

struct ToolCall {
  std::string id;
  CallFunction function;
  std::string type{kFunctionType[0]};
};
template <class V, Described<ToolCall> T>
void describe(V& v, T& call) {
  v("id", call.id);
  v("type", call.type, {.names = kFunctionType});
  v("function", call.function);
}

struct ChatMessage {
  std::optional<std::string> content;  // null: calls only
  std::string reasoning;
  std::vector<ToolCall> calls;
  std::string role{kAssistantRole[0]};
  std::nullptr_t refusal = nullptr;
};
template <class V, Described<ChatMessage> T>
void describe(V& v, T& message) {
  v("role", message.role, {.names = kAssistantRole});
  v("content", message.content, {.null_when_absent = true});
  v("refusal", message.refusal);
  v("reasoning_content", message.reasoning, {.omit_empty = true});
  v("tool_calls", message.calls, {.omit_empty = true});
}

struct ChatChoice {
  std::size_t index = 0;
  ChatMessage message;
  std::optional<ChatLogprobs> logprobs;
  std::string finish_reason;
};
template <class V, Described<ChatChoice> T>
void describe(V& v, T& choice) {
  v("index", choice.index);
  v("message", choice.message);
  v("logprobs", choice.logprobs, {.null_when_absent = true});
  v("finish_reason", choice.finish_reason, {.names = kChatEnds});
}

struct ChatCompletion {
  ObjectHead head;
  std::vector<ChatChoice> choices;
  Usage usage;
};
template <class V, Described<ChatCompletion> T>
void describe(V& v, T& completion) {
  describe_head(v, completion.head, kChatObject);
  v("choices", completion.choices);
  v("usage", completion.usage);
}

// A piece of a call: its beginning has a name, what follows only arguments.
struct FunctionPiece {
  std::optional<std::string> name;
  std::string arguments;
};
template <class V, Described<FunctionPiece> T>
void describe(V& v, T& piece) {
  v("name", piece.name);
  v("arguments", piece.arguments);
}

struct CallPiece {
  std::size_t index = 0;
  std::optional<std::string> id;
  std::optional<std::string> type;
  FunctionPiece function;
};
template <class V, Described<CallPiece> T>
void describe(V& v, T& piece) {
  v("index", piece.index);
  v("id", piece.id);
  v("type", piece.type, {.names = kFunctionType});
  v("function", piece.function);
}

struct ChatDelta {
  std::optional<std::string> role;
  std::optional<std::string> content;
  std::optional<std::nullptr_t> refusal;
  std::optional<std::string> reasoning;
  std::vector<CallPiece> calls;
};
template <class V, Described<ChatDelta> T>
void describe(V& v, T& delta) {
  v("role", delta.role, {.names = kAssistantRole});
  v("content", delta.content);
  v("refusal", delta.refusal);
  v("reasoning_content", delta.reasoning);
  v("tool_calls", delta.calls, {.omit_empty = true});
}

struct ChunkChoice {
  std::size_t index = 0;
  ChatDelta delta;
  std::optional<ChatLogprobs> logprobs;
  std::optional<std::string> finish_reason;
};
template <class V, Described<ChunkChoice> T>
void describe(V& v, T& choice) {
  v("index", choice.index);
  v("delta", choice.delta);
  v("logprobs", choice.logprobs, {.null_when_absent = true});
  v("finish_reason", choice.finish_reason, {.names = kChatEnds, .null_when_absent = true});
}

struct ChatCompletionChunk {
  ObjectHead head;
  std::vector<ChunkChoice> choices;
  std::optional<ChunkUsage> usage;
  std::optional<ChunkIds> told;
};
template <class V, Described<ChatCompletionChunk> T>
void describe(V& v, T& chunk) {
  describe_chunk(v, chunk, kChatChunkObject);
}

struct Embedding {
  std::size_t index = 0;
  std::variant<std::string, std::vector<double>> values;  // base64, or numbers
  std::string object{kEmbeddingObject[0]};
};
template <class V, Described<Embedding> T>
void describe(V& v, T& embedding) {
  v("object", embedding.object, {.names = kEmbeddingObject});
  v("index", embedding.index);
  v("embedding", embedding.values);
}

struct EmbeddingUsage {
  std::int64_t prompt_tokens = 0;
};
template <class V, Described<EmbeddingUsage> T>
void describe(V& v, T& usage) {
  v("prompt_tokens", usage.prompt_tokens);
  v.derived("total_tokens", usage.prompt_tokens);
}

struct EmbeddingList {
  std::vector<Embedding> data;
  std::string model;
  EmbeddingUsage usage;
  std::string object{kListObject[0]};
};
template <class V, Described<EmbeddingList> T>
void describe(V& v, T& list) {
  v("object", list.object, {.names = kListObject});
  v("data", list.data);
  v("model", list.model);
  v("usage", list.usage);
}

}  // namespace llorch::openai
