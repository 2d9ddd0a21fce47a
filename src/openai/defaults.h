// What OpenAI's API means where a request does not say.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llorch::openai {

// Tokens of a completion; a chat's answer may fill the context.
inline constexpr std::int32_t kCompletionMaxTokens = 16;

// Answers to one request: prompts × n.
inline constexpr std::size_t kChoicesMax = 64;

}  // namespace llorch::openai
