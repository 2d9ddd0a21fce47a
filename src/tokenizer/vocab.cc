#include "tokenizer/vocab.h"

#include "base/check.h"

namespace llorch::tokenizer {

Vocab::Vocab(std::span<const std::string_view> pieces, std::span<const std::uint8_t> is_listed) {
  CHECK(pieces.size() <= kMaxVocabSize);
  std::size_t bytes = 0;
  for (const std::string_view piece : pieces) bytes += piece.size();
  CHECK(bytes <= UINT32_MAX);
  arena_.reserve(bytes);
  begins_.reserve(pieces.size() + 1);
  slots_.resize(std::bit_ceil(pieces.size() * 2 + 2));
  mask_ = slots_.size() - 1;
  for (const std::string_view piece : pieces) {
    begins_.push_back(static_cast<std::uint32_t>(arena_.size()));
    arena_ += piece;
  }
  begins_.push_back(static_cast<std::uint32_t>(arena_.size()));
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].empty() || (!is_listed.empty() && is_listed[id] == 0)) continue;
    const std::uint64_t hash = hash_bytes(pieces[id]);
    Slot* slot = find_slot(pieces[id], hash);
    if (slot->id_and_flag != 0) continue;
    *slot = {static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(id + 1)};
  }
}

Vocab::Slot* Vocab::find_slot(std::string_view text, std::uint64_t hash) {
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  for (std::size_t i = hash & mask_;; i = (i + 1) & mask_) {
    Slot& slot = slots_[i];
    if (slot.id_and_flag == 0) return &slot;
    const auto id = static_cast<TokenId>((slot.id_and_flag & ~kDirect) - 1);
    if (slot.tag == tag && piece(id) == text) return &slot;
  }
}

Vocab::Found Vocab::find(std::string_view text, std::uint64_t hash) const {
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  for (std::size_t i = hash & mask_;; i = (i + 1) & mask_) {
    const Slot& slot = slots_[i];
    if (slot.id_and_flag == 0) return {};
    const auto id = static_cast<TokenId>((slot.id_and_flag & ~kDirect) - 1);
    if (slot.tag == tag && piece(id) == text) return {id, (slot.id_and_flag & kDirect) != 0};
  }
}

void Vocab::mark_direct(TokenId id) {
  Slot* slot = find_slot(piece(id), hash_bytes(piece(id)));
  if (slot->id_and_flag == static_cast<std::uint32_t>(id) + 1) slot->id_and_flag |= kDirect;
}

}  // namespace llorch::tokenizer
