// Errors as OpenAI's clients read them.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace llorch::openai {

// {"error":{"message","type","param","code"}}. `param` empty: null; `code` empty: by the error.
json::Object error_json(const Error& error, std::string_view param = {},
                        std::string_view code = {});

}  // namespace llorch::openai
