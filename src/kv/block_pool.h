// Which cache blocks are held, how often, and in which order idle ones are given away. Numbers
// only: what a block contains is the prefix index's business.
#pragma once

#include <cstdint>
#include <vector>

namespace llorch::kv {

using BlockId = std::int32_t;
inline constexpr BlockId kNoBlock = -1;

// A block is empty (free, worth nothing), held (references > 0), or idle (free, and its content is
// kept until somebody needs the room). All bookkeeping is allocated once.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t num_blocks);

  struct Taken {
    BlockId block = kNoBlock;  // kNoBlock: every block is held
    bool was_kept = false;     // its content is lost with this
  };

  // One reference to an empty block; where there is none, to the idle block that was released
  // longest ago. The block is not kept any more.
  Taken take();
  // One more reference to a block that is held or idle.
  void hold(BlockId block);
  // One reference less. The last one makes the block idle when it is kept, empty otherwise.
  void release(BlockId block);
  // From now on the content of this held block is worth keeping.
  void keep(BlockId block);

  std::int32_t num_blocks() const { return static_cast<std::int32_t>(blocks_.size()); }
  std::int32_t num_free() const { return num_free_; }  // empty and idle
  std::int32_t references(BlockId block) const { return at(block).references; }
  bool is_kept(BlockId block) const { return at(block).kept; }

 private:
  struct Block {
    std::int32_t references = 0;
    bool kept = false;
    BlockId older = kNoBlock;  // neighbours among the idle blocks
    BlockId newer = kNoBlock;
  };

  const Block& at(BlockId block) const;
  Block& at(BlockId block);
  void append_idle(BlockId block);
  void remove_idle(BlockId block);

  std::vector<Block> blocks_;
  std::vector<BlockId> empty_;  // a stack
  BlockId oldest_idle_ = kNoBlock;
  BlockId newest_idle_ = kNoBlock;
  std::int32_t num_free_ = 0;
};

}  // namespace llorch::kv
