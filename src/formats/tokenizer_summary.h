// What is said about a model's tokenizer, without making one. Private to formats/; see summary.h.
#pragma once

#include <optional>

#include "formats/summary.h"
#include "formats/weight_file.h"

namespace llorch::formats {

std::optional<TokenizerSummary> summarize_tokenizer(const WeightFile& file);

}  // namespace llorch::formats
