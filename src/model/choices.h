// How the rows of a step that want their id alone get it. Private to model/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"

namespace llorch::model {

enum class Choice : std::uint8_t { Largest, Drawn, ByRule };

// What all of them need, and the numbers for that behind what is staged: temperatures and then
// draws, or a rule for each.
Choice stage_choices(const BatchPlan& plan, std::int64_t vocab, std::vector<std::int32_t>& staging);

// What edit_logits is given, as it lies behind what is staged: rules, changes, masks.
struct StagedEdits {
  std::int64_t rules = 0, changes = 0, masks = 0;  // rows of each
};
StagedEdits stage_edits(std::span<const RowEdits> edits, std::int64_t vocab,
                        std::vector<std::int32_t>& staging);
// The most words that takes.
std::int64_t edit_words(std::int64_t rows, std::int64_t changes, std::int64_t vocab);

}  // namespace llorch::model
