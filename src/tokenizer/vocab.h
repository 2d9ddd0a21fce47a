// Pieces by id and ids by piece: one arena of text and one flat hash table over it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/hash.h"
#include "tokenizer/types.h"

namespace llorch::tokenizer {

// Larger than any vocabulary of today by a factor of ten; bounds what a file can make us allocate.
inline constexpr std::size_t kMaxVocabSize = std::size_t{1} << 22;

class Vocab {
 public:
  // A fact about a piece kept beside its id in the table, for one look-up instead of two.
  struct Found {
    TokenId id = kNoToken;
    bool is_direct = false;
  };

  // piece[id]; is_listed[id] says whether find() may return it (an empty span: all of them, except
  // empty pieces, which are ids without a piece). Of equal pieces the first is found.
  Vocab(std::span<const std::string_view> pieces, std::span<const std::uint8_t> is_listed);

  std::size_t size() const { return begins_.size() - 1; }
  std::string_view piece(TokenId id) const {
    const auto index = static_cast<std::size_t>(id);
    return std::string_view(arena_).substr(begins_[index], begins_[index + 1] - begins_[index]);
  }
  bool contains(TokenId id) const { return id >= 0 && static_cast<std::size_t>(id) < size(); }

  Found find(std::string_view piece) const { return find(piece, hash_bytes(piece)); }
  Found find(std::string_view piece, std::uint64_t hash) const;
  TokenId id_of(std::string_view piece) const { return find(piece).id; }

  // Marks what find() reports as is_direct. While loading only.
  void mark_direct(TokenId id);

 private:
  struct Slot {
    std::uint32_t tag = 0;          // upper half of the hash
    std::uint32_t id_and_flag = 0;  // id + 1 in the lower 31 bits, 0 when free
  };
  static constexpr std::uint32_t kDirect = 0x80000000U;

  Slot* find_slot(std::string_view piece, std::uint64_t hash);

  std::string arena_;
  std::vector<std::uint32_t> begins_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  std::size_t mask_ = 0;
};

}  // namespace llorch::tokenizer
