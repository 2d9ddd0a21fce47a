#include "kv/block_pool.h"

#include "base/check.h"

namespace llorch::kv {

BlockPool::BlockPool(std::int32_t num_blocks) : num_free_(num_blocks) {
  CHECK(num_blocks > 0);
  blocks_.resize(static_cast<std::size_t>(num_blocks));
  empty_.reserve(blocks_.size());
  for (BlockId block = num_blocks - 1; block >= 0; --block) empty_.push_back(block);
}

BlockPool::Taken BlockPool::take() {
  if (num_free_ == 0) return {};
  Taken taken;
  if (!empty_.empty()) {
    taken.block = empty_.back();
    empty_.pop_back();
  } else {
    taken = {.block = oldest_idle_, .was_kept = true};
    remove_idle(taken.block);
  }
  Block& block = at(taken.block);
  block.references = 1;
  block.kept = false;
  --num_free_;
  return taken;
}

void BlockPool::hold(BlockId block) {
  Block& held = at(block);
  if (held.references == 0) {
    CHECK(held.kept, "an empty block is taken, not held");
    remove_idle(block);
    --num_free_;
  }
  ++held.references;
}

void BlockPool::release(BlockId block) {
  Block& released = at(block);
  CHECK(released.references > 0, "a block is released more often than it is held");
  if (--released.references > 0) return;
  ++num_free_;
  if (released.kept) {
    append_idle(block);
  } else {
    empty_.push_back(block);
  }
}

void BlockPool::keep(BlockId block) {
  Block& kept = at(block);
  CHECK(kept.references > 0, "only a held block has content to keep");
  kept.kept = true;
}

const BlockPool::Block& BlockPool::at(BlockId block) const {
  CHECK(block >= 0 && block < num_blocks(), "no such block");
  return blocks_[static_cast<std::size_t>(block)];
}

BlockPool::Block& BlockPool::at(BlockId block) {
  return const_cast<Block&>(static_cast<const BlockPool*>(this)->at(block));
}

void BlockPool::append_idle(BlockId block) {
  Block& appended = at(block);
  appended.older = newest_idle_;
  appended.newer = kNoBlock;
  (newest_idle_ == kNoBlock ? oldest_idle_ : at(newest_idle_).newer) = block;
  newest_idle_ = block;
}

void BlockPool::remove_idle(BlockId block) {
  const Block& removed = at(block);
  (removed.older == kNoBlock ? oldest_idle_ : at(removed.older).newer) = removed.newer;
  (removed.newer == kNoBlock ? newest_idle_ : at(removed.newer).older) = removed.older;
}

}  // namespace llorch::kv
