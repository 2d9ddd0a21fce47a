#include "worker/cache_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "base/terminal.h"

namespace llorch::worker {
namespace {

// Few requests fill a long context; more than this is not kept ready for each of them.
constexpr std::int32_t kUsualTokens = 4096;

}  // namespace

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
    const auto blocks_of = [&](std::int64_t tokens) {
      return (tokens + needs.block_tokens - 1) / needs.block_tokens;
    };
    const std::int64_t usual = std::min(needs.context, kUsualTokens);
    blocks = std::max(blocks_of(needs.context), blocks_of(usual) * needs.max_batch);
    blocks = std::min(blocks, free_bytes / 4 / needs.block_bytes);
  }
  if (blocks < 1) {
    return Error{ErrorCode::OutOfMemory,
                 fmt::format("the key/value cache needs at least {} for {} tokens; found {}",
                             base::human_bytes(needs.block_bytes), needs.block_tokens,
                             wanted_bytes ? fmt::format("--kv-memory {}", *wanted_bytes)
                                          : base::human_bytes(free_bytes) + " free")};
  }
  return static_cast<std::int32_t>(std::min(blocks, kBlocksMax));
}

std::int64_t free_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  std::string unit;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return std::int64_t{1} << 30;  // a system that does not say
}

}  // namespace llorch::worker
