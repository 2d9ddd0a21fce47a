#include "kv/block_cache.h"

#include <algorithm>

#include "base/check.h"

namespace llorch::kv {

BlockCache::BlockCache(const BlockCacheOptions& options)
    : pool_(options.num_blocks),
      index_(options.num_blocks, options.block_tokens, options.hash),
      block_tokens_(options.block_tokens),
      share_(options.share) {}

std::int32_t BlockCache::find_prefix(std::span<const std::int32_t> tokens,
                                     std::vector<BlockId>& blocks, Salt salt) const {
  blocks.clear();
  if (!share_ || tokens.empty()) return 0;
  const auto size = static_cast<std::size_t>(block_tokens_);
  std::int32_t num_idle = 0;
  BlockId parent = kNoBlock;
  for (std::size_t start = 0; start + size < tokens.size(); start += size) {
    parent = index_.find(parent, tokens.subspan(start, size), salt);
    if (parent == kNoBlock) break;
    blocks.push_back(parent);
    if (pool_.references(parent) == 0) ++num_idle;
  }
  return num_idle;
}

void BlockCache::hold(std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) pool_.hold(block);
}

BlockId BlockCache::take() {
  const BlockPool::Taken taken = pool_.take();
  if (taken.was_kept) index_.erase(taken.block);
  return taken.block;
}

BlockId BlockCache::publish(BlockId block, BlockId parent, std::span<const std::int32_t> tokens,
                            Salt salt) {
  if (!share_) return block;
  const BlockId same = index_.find(parent, tokens, salt);
  if (same == kNoBlock) {
    index_.insert(block, parent, tokens, salt);
    pool_.keep(block);
    return block;
  }
  CHECK(same != block, "a block is published once");
  pool_.hold(same);
  pool_.release(block);
  return same;
}

void BlockCache::release(std::span<const BlockId> blocks) {
  for (std::size_t i = blocks.size(); i > 0; --i) pool_.release(blocks[i - 1]);
}

std::int32_t BlockCache::num_held_once(std::span<const BlockId> blocks) const {
  return static_cast<std::int32_t>(std::ranges::count_if(
      blocks, [this](BlockId block) { return pool_.references(block) == 1; }));
}

}  // namespace llorch::kv
