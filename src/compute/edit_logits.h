// The op that changes logits before tokens are chosen of them: logit bias, what may not follow,
// penalties.
#pragma once

#include <cstdint>

#include "tensor/tensor_view.h"

namespace llorch::compute {

// What is done to one row, as it lies in device memory: six words.
struct EditRule {
  std::int32_t first_change = 0;  // row of EditLogitsArgs::changes
  std::int32_t num_changes = 0;
  std::int32_t mask = -1;  // row of EditLogitsArgs::masks; -1: every id may follow
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
};
inline constexpr int kEditWords = 6;
static_assert(sizeof(EditRule) == kEditWords * 4);

// What is done to one logit: three words. An id stands once among the changes of a row.
struct LogitChange {
  std::int32_t id = 0;
  float bias = 0;
  std::int32_t count = -1;  // in the output; 0: in the prompt alone; -1: nowhere
};
inline constexpr int kChangeWords = 3;
static_assert(sizeof(LogitChange) == kChangeWords * 4);

// Words of a mask: id i may follow where bit i % 32 of word i / 32 is set.
constexpr std::int64_t mask_words(std::int64_t ids) {
  return (ids + 31) / 32;
}

// In this order, each operation rounded as it is written (engine/sampler.cc): the bias is added;
// what may not follow becomes -infinity, unless it is NaN or +infinity, which stays; where count is
// 0 or more, what is above 0 is divided by the repetition penalty and all else multiplied by it;
// where it is above 0, count * frequency + presence is taken off.
struct EditLogitsArgs {
  tensor::TensorView x;        // (rows, dim), in place
  tensor::TensorView rules;    // (rows, kEditWords) I32: EditRule
  tensor::TensorView changes;  // (n, kChangeWords) I32: LogitChange; null: none
  tensor::TensorView masks;    // (m, mask_words(dim)) I32; null: none
};

}  // namespace llorch::compute
