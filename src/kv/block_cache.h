// The cache blocks of a model as sequences use them: taken, filled, shared by content, given back.
// Joins the pool (who holds what) and the prefix index (what is where); integers only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/prefix_index.h"

namespace llorch::kv {

struct BlockCacheOptions {
  std::int32_t num_blocks = 0;
  std::int32_t block_tokens = 16;
  bool share = true;  // false: nothing is published or found
  PrefixIndex::Hash hash = PrefixIndex::chained_hash;
};

// One thread. A sequence holds its blocks as a chain from the start of its text and releases all of
// them together, so a block of the index is never given away before its children.
class BlockCache {
 public:
  explicit BlockCache(const BlockCacheOptions& options);

  // The longest run of published blocks that `tokens` starts with, into `blocks`, short of the
  // whole: one token at least stays to be computed. Returns how many of them nobody holds. They
  // stay valid until the next take().
  std::int32_t find_prefix(std::span<const std::int32_t> tokens, std::vector<BlockId>& blocks,
                           Salt salt = 0) const;
  // One reference to each.
  void hold(std::span<const BlockId> blocks);

  // A block with one reference and content that means nothing, or kNoBlock.
  BlockId take();

  // Says that a completed step has filled this block of the caller with these tokens, after the
  // published block `parent` (kNoBlock: at the start). Returns the block to use from now on: where
  // another one has the same content already, the caller holds that one instead of its own.
  BlockId publish(BlockId block, BlockId parent, std::span<const std::int32_t> tokens,
                  Salt salt = 0);

  // Gives the chain of one sequence back, its end first. Published blocks can be found until the
  // room is needed.
  void release(std::span<const BlockId> blocks);

  // How many of these blocks one release would make free.
  std::int32_t num_held_once(std::span<const BlockId> blocks) const;

  std::int32_t num_blocks() const { return pool_.num_blocks(); }
  std::int32_t num_free() const { return pool_.num_free(); }
  std::int32_t num_published() const { return index_.size(); }
  std::int32_t block_tokens() const { return block_tokens_; }
  bool shares() const { return share_; }

 private:
  BlockPool pool_;
  PrefixIndex index_;
  std::int32_t block_tokens_;
  bool share_;
};

}  // namespace llorch::kv
