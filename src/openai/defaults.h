// What OpenAI's API means where a request does not say.
#pragma once

#include <cstdint>

namespace llorch::openai {

// Tokens of a completion; a chat's answer may fill the context.
inline constexpr std::int32_t kCompletionMaxTokens = 16;

}  // namespace llorch::openai
