// The rows of a step as runs: how a host tells attention what device tensors
// say row by row.
#pragma once

#include <cstdint>
#include <vector>

namespace llorch::compute {

// Rows first_row .. first_row + rows - 1 are positions first_position,
// first_position + 1, … of one sequence.
struct SequenceRun {
  std::int32_t sequence = 0;
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t first_position = 0;
};

// Adds the next row: to the last run where it goes on, else as a new one.
inline void add_row(std::vector<SequenceRun>& runs, std::int32_t sequence, std::int32_t position) {
  if (!runs.empty()) {
    SequenceRun& last = runs.back();
    if (last.sequence == sequence && last.first_position + last.rows == position) {
      ++last.rows;
      return;
    }
  }
  const std::int32_t row = runs.empty() ? 0 : runs.back().first_row + runs.back().rows;
  runs.push_back({sequence, row, 1, position});
}

}  // namespace llorch::compute
