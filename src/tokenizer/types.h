// The one type every file of this module shares.
#pragma once

#include <cstdint>

namespace llorch::tokenizer {

using TokenId = std::int32_t;
inline constexpr TokenId kNoToken = -1;

}  // namespace llorch::tokenizer
