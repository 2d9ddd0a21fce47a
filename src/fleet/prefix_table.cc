#include "fleet/prefix_table.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace llorch::fleet {
namespace {

// 0 marks a free entry.
std::uint64_t usable(std::uint64_t hash) {
  return hash == 0 ? 1 : hash;
}

}  // namespace

PrefixTable::PrefixTable(std::size_t entries) : entries_(entries) {
  CHECK(std::has_single_bit(entries) && entries >= kWays, "the size is a power of two");
}

const PrefixTable::Entry* PrefixTable::find_entry(std::uint64_t hash) const {
  hash = usable(hash);
  const std::size_t first = hash & (entries_.size() - 1) & ~(kWays - 1);
  for (std::size_t i = first; i < first + kWays; ++i) {
    if (entries_[i].hash == hash) return &entries_[i];
  }
  return nullptr;
}

PrefixTable::Entry& PrefixTable::make_entry(std::uint64_t hash) {
  hash = usable(hash);
  const std::size_t first = hash & (entries_.size() - 1) & ~(kWays - 1);
  Entry* free = nullptr;
  for (std::size_t i = first; i < first + kWays; ++i) {
    if (entries_[i].hash == hash) return entries_[i];
    if (free == nullptr && entries_[i].hash == 0) free = &entries_[i];
  }
  // Second chance: an entry used since the last look stays once more.
  for (std::size_t i = 0; free == nullptr && i < 2 * kWays; ++i) {
    Entry& entry = entries_[first + (hand_++ & (kWays - 1))];
    if (!entry.was_used) free = &entry;
    entry.was_used = false;
  }
  CHECK(free != nullptr, "the hand came by twice");
  *free = Entry{};
  free->hash = hash;
  return *free;
}

void PrefixTable::note(std::span<const std::uint64_t> prefix, WorkerIndex worker,
                       std::uint32_t start) {
  for (const std::uint64_t hash : prefix.first(std::min(prefix.size(), kPrefixBlocksMax))) {
    Entry& entry = make_entry(hash);
    entry.was_used = entry.holders[0].worker != kNone;  // a new one has to prove itself
    Holder* place = nullptr;
    for (Holder& holder : entry.holders) {
      if (holder.worker == worker || (place == nullptr && holder.worker == kNone)) place = &holder;
    }
    if (place == nullptr) place = &entry.holders[entry.next++ % kHolders];
    *place = {worker, start};
  }
}

std::size_t PrefixTable::known_blocks(std::span<const std::uint64_t> prefix) const {
  std::size_t known = 0;
  std::size_t unknown = std::min(prefix.size(), kPrefixBlocksMax) + 1;
  while (unknown - known > 1) {
    const std::size_t middle = (known + unknown) / 2;
    (find_entry(prefix[middle - 1]) != nullptr ? known : unknown) = middle;
  }
  return known;
}

}  // namespace llorch::fleet
