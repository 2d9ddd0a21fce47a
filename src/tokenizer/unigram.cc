#include "tokenizer/unigram.h"

#include <algorithm>
#include <utility>

#include "tokenizer/hash.h"
#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10.0;  // SentencePiece's: below the worst piece

}  // namespace

Unigram::Unigram(const Vocab& vocab, std::span<const double> scores, const UnigramOptions& options)
    : scores_(scores.begin(), scores.end()), options_(options), slots_(1024) {
  double worst = 0;
  for (std::size_t id = 0; id < vocab.size(); ++id) {
    const std::string_view piece = vocab.piece(static_cast<TokenId>(id));
    if (piece.empty() || vocab.id_of(piece) != static_cast<TokenId>(id)) continue;
    worst = std::min(worst, scores_[id]);
    insert(piece, static_cast<TokenId>(id));
  }
  unknown_score_ = worst - kUnknownPenalty;
}

Unigram::Slot* Unigram::find_slot(std::vector<Slot>& slots, std::uint64_t edge) const {
  const std::size_t mask = slots.size() - 1;
  std::size_t i = hash_number(edge) & mask;
  while (slots[i].edge != kFree && slots[i].edge != edge) i = (i + 1) & mask;
  return &slots[i];
}

const Unigram::Slot* Unigram::find_edge(std::uint32_t node, std::uint8_t byte) const {
  const std::uint64_t edge = std::uint64_t{node} << 8 | byte;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash_number(edge) & mask;; i = (i + 1) & mask) {
    if (slots_[i].edge == edge) return &slots_[i];
    if (slots_[i].edge == kFree) return nullptr;
  }
}

void Unigram::grow() {
  std::vector<Slot> larger(slots_.size() * 2);
  for (const Slot& slot : slots_) {
    if (slot.edge != kFree) *find_slot(larger, slot.edge) = slot;
  }
  slots_ = std::move(larger);
}

void Unigram::insert(std::string_view piece, TokenId id) {
  std::uint32_t node = 0;
  Slot* slot = nullptr;
  for (const char c : piece) {
    if (num_edges_ * 2 >= slots_.size()) grow();
    const std::uint64_t edge = std::uint64_t{node} << 8 | static_cast<std::uint8_t>(c);
    slot = find_slot(slots_, edge);
    if (slot->edge == kFree) {
      *slot = {edge, num_nodes_++, kNoToken};
      ++num_edges_;
    }
    node = slot->child;
  }
  slot->id = id;
}

void Unigram::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  // For each position that ends a piece: the best score up to it, where that piece starts, and its
  // id.
  std::vector<double>& best = scratch.best;
  std::vector<std::int32_t>& start = scratch.back;
  std::vector<TokenId>& ids = scratch.ids;
  best.assign(word.size() + 1, 0.0);
  start.assign(word.size() + 1, -1);
  ids.assign(word.size() + 1, kNoToken);
  const auto offer = [&](std::size_t begin, std::size_t end, double score, TokenId id) {
    if (start[end] >= 0 && score <= best[end]) return;
    best[end] = score;
    start[end] = static_cast<std::int32_t>(begin);
    ids[end] = id;
  };
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t character = utf8_length(word[begin]);
    bool has_single = false;
    std::uint32_t node = 0;
    std::size_t i = begin;
    for (; i < word.size(); ++i) {
      const Slot* edge = find_edge(node, static_cast<std::uint8_t>(word[i]));
      if (edge == nullptr) break;
      node = edge->child;
      if (edge->id == kNoToken) continue;
      offer(begin, i + 1, best[begin] + scores_[static_cast<std::size_t>(edge->id)], edge->id);
      has_single = has_single || i + 1 - begin == character;
    }
    if (!scratch.spend(4 * (i - begin + 1))) return;
    if (!has_single) offer(begin, begin + character, best[begin] + unknown_score_, kNoToken);
    begin += character;
  }
  // Back from the end; neighbouring unknown characters make one unknown piece.
  scratch.parts.clear();
  for (std::size_t end = word.size(); end > 0;) {
    const auto begin = static_cast<std::size_t>(start[end]);
    const auto is_unknown = [](const Scratch::Part& part) { return part.whole == kNoToken; };
    if (ids[end] == kNoToken && !scratch.parts.empty() && is_unknown(scratch.parts.back())) {
      scratch.parts.back().left = static_cast<TokenId>(begin);
    } else {
      scratch.parts.push_back({ids[end], static_cast<TokenId>(begin), static_cast<TokenId>(end)});
    }
    end = begin;
  }
  for (auto part = scratch.parts.rbegin(); part != scratch.parts.rend(); ++part) {
    if (part->whole != kNoToken) {
      out.push_back(part->whole);
      continue;
    }
    append_unknown(word.substr(static_cast<std::size_t>(part->left),
                               static_cast<std::size_t>(part->right - part->left)),
                   out);
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<TokenId>& out) const {
  const auto piece_of = [&](char c) { return options_.byte_pieces[static_cast<std::uint8_t>(c)]; };
  if (options_.byte_fallback &&
      std::all_of(text.begin(), text.end(), [&](char c) { return piece_of(c) != kNoToken; })) {
    for (const char c : text) out.push_back(piece_of(c));
  } else if (options_.unknown != kNoToken) {
    out.push_back(options_.unknown);
  }
}

}  // namespace llorch::tokenizer
