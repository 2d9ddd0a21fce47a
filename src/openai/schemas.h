// OpenAI's bodies and answers as JSON Schemas, for the documents of those who serve them.
#pragma once

#include "base/json.h"

namespace llorch::openai {

// Adds CompletionRequest, Completion, ChatCompletionRequest, ChatCompletion, ChatCompletionChunk,
// EmbeddingRequest, EmbeddingList, Model, ModelList, OpenAiError and what they refer to.
void add_schemas(json::Object& schemas);

}  // namespace llorch::openai
