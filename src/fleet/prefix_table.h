// PrefixTable: which workers are likely to hold the beginning of a prompt in their cache. A hint:
// it may be wrong both ways, and placement trusts it as far as it was right before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fleet/handles.h"

namespace llorch::fleet {

// A prompt is named by chained hashes: hash i covers its first i + 1 blocks.
inline constexpr std::size_t kPrefixBlockBytes = 256;
inline constexpr std::size_t kPrefixBlocksMax = 64;

struct PrefixHit {
  WorkerIndex worker = kNone;
  std::uint32_t blocks = 0;  // of the prompt, from its start
};

class PrefixTable {
 public:
  // A power of two; 2^18 entries are 12 MB.
  explicit PrefixTable(std::size_t entries = std::size_t{1} << 18U);

  // The worker was given this prompt. `start` is its birth: one that was restarted is another.
  void note(std::span<const std::uint64_t> prefix, WorkerIndex worker, std::uint32_t start);

  // Workers with the longest shared beginnings, longest first. `start_of(worker)` is the birth of
  // the worker that has this index now.
  static constexpr std::size_t kHitsMax = 8;
  template <class StartOf>
  std::size_t find(std::span<const std::uint64_t> prefix, std::span<PrefixHit, kHitsMax> hits,
                   const StartOf& start_of) const;

 private:
  static constexpr std::size_t kHolders = 4;
  struct Holder {
    WorkerIndex worker = kNone;
    std::uint32_t start = 0;
  };
  struct Entry {
    std::uint64_t hash = 0;  // 0: free
    std::array<Holder, kHolders> holders;
    std::uint8_t next = 0;  // the holder to be replaced
    bool was_used = false;  // since the clock's hand came by
  };

  const Entry* find_entry(std::uint64_t hash) const;
  Entry& make_entry(std::uint64_t hash);
  // Blocks from the start that are known, by bisection: what is known of a prompt is a beginning,
  // as long as nothing was thrown away.
  std::size_t known_blocks(std::span<const std::uint64_t> prefix) const;

  static constexpr std::size_t kWays = 8;  // entries in which a hash may lie
  std::vector<Entry> entries_;
  std::size_t hand_ = 0;
};

template <class StartOf>
std::size_t PrefixTable::find(std::span<const std::uint64_t> prefix,
                              std::span<PrefixHit, kHitsMax> hits, const StartOf& start_of) const {
  std::size_t count = 0;
  for (std::size_t blocks = known_blocks(prefix); blocks > 0 && count < kHitsMax; --blocks) {
    const Entry* entry = find_entry(prefix[blocks - 1]);
    if (entry == nullptr) continue;
    for (const Holder& holder : entry->holders) {
      if (holder.worker == kNone || start_of(holder.worker) != holder.start) continue;
      bool is_known = false;
      for (std::size_t i = 0; i < count; ++i) is_known |= hits[i].worker == holder.worker;
      if (is_known || count == kHitsMax) continue;
      hits[count++] = {holder.worker, static_cast<std::uint32_t>(blocks)};
    }
  }
  return count;
}

}  // namespace llorch::fleet
