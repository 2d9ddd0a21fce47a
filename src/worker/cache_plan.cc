#include "worker/cache_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/terminal.h"
#include "contract/pool_info.h"

namespace llorch::worker {
Result<std::int32_t> plan_cache_blocks(const CacheNeeds& needs,
                                       std::optional<std::uint64_t> wanted_bytes,
                                       std::int64_t free_bytes) {
  constexpr std::int64_t kBlocksMax = std::numeric_limits<std::int32_t>::max() / 1024;
  std::int64_t blocks = 0;
  if (wanted_bytes) {
    if (*wanted_bytes > static_cast<std::uint64_t>(free_bytes)) {
      return Error{ErrorCode::OutOfMemory,
                   fmt::format("--kv-memory asks for {} bytes, but {} are free", *wanted_bytes,
                               base::human_bytes(free_bytes))};
    }
    blocks = static_cast<std::int64_t>(*wanted_bytes) / needs.block_bytes;
  } else {
    blocks = contract::cache_tokens(needs.context, needs.max_batch) / contract::kCacheBlockTokens;
    blocks = std::min(blocks, free_bytes / 4 / needs.block_bytes);
  }
  if (blocks < 1) {
    return Error{ErrorCode::OutOfMemory,
                 fmt::format("the key/value cache needs at least {} for {} tokens; found {}",
                             base::human_bytes(needs.block_bytes), contract::kCacheBlockTokens,
                             wanted_bytes ? fmt::format("--kv-memory {}", *wanted_bytes)
                                          : base::human_bytes(free_bytes) + " free")};
  }
  return static_cast<std::int32_t>(std::min(blocks, kBlocksMax));
}

}  // namespace llorch::worker
