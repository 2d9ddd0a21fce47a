// The op that chooses tokens where more than a temperature is asked for.
#pragma once

#include <cstdint>

#include "tensor/tensor_view.h"

namespace llorch::compute {

// How the token of one row is chosen, as it lies in device memory: eight words. Weights and draws
// are those of DrawArgs; the order of candidates, ties and shares is that of engine/sampler.cc.
struct ChoiceRule {
  float temperature = 0;        // 0: the largest; nothing below counts then
  std::int32_t top_k = 0;       // 0: off, else below the number of ids
  std::int32_t has_top_p = 0;   // 0: off
  std::uint32_t top_p = 0;      // in units of 2^-32
  std::uint32_t draw[2] = {};   // a number below 2^53, its lower half first
  std::uint32_t least[2] = {};  // the least weight that may be drawn (min-p), likewise
};
inline constexpr int kChoiceWords = 8;
static_assert(sizeof(ChoiceRule) == kChoiceWords * 4);

struct ChooseArgs {
  tensor::TensorView x;      // (rows, dim)
  tensor::TensorView rules;  // (rows, kChoiceWords) I32: ChoiceRule
  tensor::TensorView out;    // (rows) I32; -1 as in ArgmaxArgs
};

}  // namespace llorch::compute
