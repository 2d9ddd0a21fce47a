// How many cache blocks a worker gets: a pure decision over sizes.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"

namespace llorch::worker {

struct CacheNeeds {
  std::int64_t block_bytes = 0;  // keys and values of contract::kCacheBlockTokens in all layers
  std::int32_t context = 0;      // the longest sequence, in tokens
  std::int32_t max_batch = 0;    // sequences at once
};

// With `wanted_bytes`, as many blocks as fit them; refused when that is more than is free or less
// than a block. Without, contract::cache_tokens, at most a quarter of what is free; a context that
// does not fit is shortened by that. OutOfMemory with the numbers.
Result<std::int32_t> plan_cache_blocks(const CacheNeeds& needs,
                                       std::optional<std::uint64_t> wanted_bytes,
                                       std::int64_t free_bytes);

}  // namespace llorch::worker
