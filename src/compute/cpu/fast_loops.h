// The loops by which a processor's own limits are measured.
#pragma once

#include <cstdint>

namespace llorch::compute {

// What a set can do at most: the limits that speeds are held against.
struct FastLoops {
  // Multiply and add as fast as the set can, and give the number of operations. bf16: null where it
  // does not multiply such numbers.
  std::int64_t (*int8)(std::int64_t rounds);
  std::int64_t (*floats)(std::int64_t rounds);
  std::int64_t (*bf16)(std::int64_t rounds);
  // The sum of count words, count a multiple of 8, read one after the other as fast as the set can.
  // Null: as plain C++ does.
  std::uint64_t (*sum_words)(const std::uint64_t* words, std::int64_t count);
};

}  // namespace llorch::compute
