// Renders a chat template over lines of JSON: the --template … --batch mode of llorch-tokenize.
#pragma once

#include <chrono>
#include <iosfwd>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace llorch::tools {

// "2024-07-26" or "2024-07-26T10:20:30".
Result<std::chrono::local_seconds> parse_date(std::string_view text);

// Each line of `input` is an object whose members are the template's variables
// ({"messages","tools", "add_generation_prompt","bos_token","eos_token",…}); each line of `output`
// is {"output"} or
// {"error"}. A line that is no JSON object is an {"error"} as well; empty lines are skipped.
// `source` is the template, or the text of a tokenizer_config.json that has one under
// "chat_template". Fails only where the template itself cannot be parsed.
Status render_template_batch(std::string_view source, std::optional<std::chrono::local_seconds> now,
                             std::istream& input, std::ostream& output);

}  // namespace llorch::tools
