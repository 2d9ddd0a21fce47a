#include "kv/prefix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace llorch::kv {
namespace {

constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;

}  // namespace

std::uint64_t PrefixIndex::chained_hash(std::uint64_t parent,
                                        std::span<const std::int32_t> tokens) {
  std::uint64_t hash = (parent + 1) * 0x94d049bb133111eb;
  for (const std::int32_t token : tokens) {
    hash = (hash ^ static_cast<std::uint32_t>(token)) * kOdd;
    hash ^= hash >> 29;
  }
  hash *= 0xbf58476d1ce4e5b9;
  return hash ^ (hash >> 32);
}

PrefixIndex::PrefixIndex(std::int32_t num_blocks, std::int32_t block_tokens, Hash hash)
    : block_tokens_(static_cast<std::size_t>(block_tokens)), hash_(hash) {
  CHECK(num_blocks > 0 && block_tokens > 0);
  entries_.resize(static_cast<std::size_t>(num_blocks));
  buckets_.resize(std::bit_ceil(entries_.size()), kNoBlock);
  tokens_.resize(entries_.size() * block_tokens_);
}

BlockId PrefixIndex::find(BlockId parent, std::span<const std::int32_t> tokens, Salt salt) const {
  const std::uint64_t hash = hash_of(parent, tokens, salt);
  for (BlockId block = buckets_[bucket_of(hash)]; block != kNoBlock; block = entry(block).next) {
    const Entry& found = entry(block);
    if (found.hash == hash && found.parent == parent && found.salt == salt &&
        std::ranges::equal(tokens_of(block), tokens)) {
      return block;
    }
  }
  return kNoBlock;
}

void PrefixIndex::insert(BlockId block, BlockId parent, std::span<const std::int32_t> tokens,
                         Salt salt) {
  CHECK(!contains(block), "the block is in the index already");
  DCHECK(find(parent, tokens, salt) == kNoBlock, "the content is in the index already");
  DCHECK(parent == kNoBlock || entry(parent).salt == salt, "a text has one salt");
  const std::uint64_t hash = hash_of(parent, tokens, salt);
  BlockId& bucket = buckets_[bucket_of(hash)];
  entry(block) = {.present = true, .parent = parent, .next = bucket, .hash = hash, .salt = salt};
  bucket = block;
  std::ranges::copy(tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(
                                                  static_cast<std::size_t>(block) * block_tokens_));
  if (parent != kNoBlock) ++entry(parent).num_children;
  ++size_;
}

void PrefixIndex::erase(BlockId block) {
  Entry& erased = entry(block);
  CHECK(erased.present && erased.num_children == 0, "a block leaves the index before its children");
  BlockId* link = &buckets_[bucket_of(erased.hash)];
  while (*link != block) link = &entry(*link).next;
  *link = erased.next;
  if (erased.parent != kNoBlock) --entry(erased.parent).num_children;
  erased = {};
  --size_;
}

std::uint64_t PrefixIndex::hash_of(BlockId parent, std::span<const std::int32_t> tokens,
                                   Salt salt) const {
  CHECK(tokens.size() == block_tokens_, "only whole blocks have a place in the index");
  CHECK(parent == kNoBlock || contains(parent), "the parent is not in the index");
  return hash_(parent == kNoBlock ? salt : entry(parent).hash, tokens);
}

std::span<const std::int32_t> PrefixIndex::tokens_of(BlockId block) const {
  return std::span(tokens_).subspan(static_cast<std::size_t>(block) * block_tokens_, block_tokens_);
}

}  // namespace llorch::kv
