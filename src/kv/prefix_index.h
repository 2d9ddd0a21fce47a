// Content of a block → the block. The content of a block is its own tokens and all that came before
// them, so blocks form a tree: each has a parent block, or none at the start of a text. What else
// keys and values depend on is a salt: an adapter, inputs that are no tokens. Texts of different
// salts have no block in common.
//
// A chained hash finds the candidate; tokens, parent and salt are then compared, so that two
// contents with one hash can never be taken for each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"

namespace llorch::kv {

using Salt = std::uint64_t;  // 0: the model and the tokens alone

class PrefixIndex {
 public:
  // The hash of a block from its parent's (the salt without one) and its tokens.
  using Hash = std::uint64_t (*)(std::uint64_t parent, std::span<const std::int32_t> tokens);
  static std::uint64_t chained_hash(std::uint64_t parent, std::span<const std::int32_t> tokens);

  PrefixIndex(std::int32_t num_blocks, std::int32_t block_tokens, Hash hash = chained_hash);

  // The block with exactly these tokens after this parent (kNoBlock: at the start), or kNoBlock.
  // The parent is in the index.
  BlockId find(BlockId parent, std::span<const std::int32_t> tokens, Salt salt = 0) const;
  // Neither the block nor its content is in the index yet; the parent is, with the same salt.
  void insert(BlockId block, BlockId parent, std::span<const std::int32_t> tokens, Salt salt = 0);
  // The block is in the index and no other block has it as parent.
  void erase(BlockId block);

  bool contains(BlockId block) const { return entry(block).present; }
  std::int32_t size() const { return size_; }

 private:
  struct Entry {
    bool present = false;
    BlockId parent = kNoBlock;
    BlockId next = kNoBlock;  // with the same bucket
    std::int32_t num_children = 0;
    std::uint64_t hash = 0;
    Salt salt = 0;
  };

  const Entry& entry(BlockId block) const { return entries_[static_cast<std::size_t>(block)]; }
  Entry& entry(BlockId block) { return entries_[static_cast<std::size_t>(block)]; }
  std::uint64_t hash_of(BlockId parent, std::span<const std::int32_t> tokens, Salt salt) const;
  std::size_t bucket_of(std::uint64_t hash) const { return hash & (buckets_.size() - 1); }
  std::span<const std::int32_t> tokens_of(BlockId block) const;

  std::size_t block_tokens_;
  Hash hash_;
  std::vector<BlockId> buckets_;      // first block of each; a power of two
  std::vector<Entry> entries_;        // by block
  std::vector<std::int32_t> tokens_;  // (blocks, block_tokens)
  std::int32_t size_ = 0;
};

}  // namespace llorch::kv
