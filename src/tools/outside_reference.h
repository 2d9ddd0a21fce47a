// What another program computed for a model, where it lies beside the weights: golden.json (the ids
// of a prompt and of its greedy continuation) and golden_logits.npy (float32, a row per id).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace llorch::tools {

struct OutsideReference {
  std::string made_by;               // "transformers 5.12.1", or what the file calls itself
  std::vector<std::int32_t> prompt;  // ids within the vocabulary
  std::vector<std::int32_t> greedy;  // the prompt and its continuation
  std::vector<float> logits;         // (prompt, vocabulary)
};

// Beside `model` (in it, where it is a folder). Nothing where there is no golden.json; an error
// where there is one that does not fit a model of this vocabulary and context.
Result<std::optional<OutsideReference>> find_outside_reference(const std::filesystem::path& model,
                                                               std::int32_t vocab_size,
                                                               std::int32_t context_length);

}  // namespace llorch::tools
