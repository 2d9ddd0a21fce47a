#include "tokenizer/bpe.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_cache.h"

namespace llorch::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // "▁"
constexpr char32_t kSpaceMarkChar = 0x2581;

std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

}  // namespace

// How the merges of a piece nest, for pieces whose ranks rise from the leaves up.
struct Bpe::Tree {
  TokenId left = kNoToken, right = kNoToken;
  std::uint32_t rank = 0;
  bool is_settled = false;  // merging the piece's own text makes this tree
};

Scratch::Scratch() = default;
Scratch::~Scratch() = default;

// A piece's right or left border as merging goes on: the leaf first, the piece last.
void Bpe::climb(const std::vector<Tree>& trees, TokenId piece, TokenId Tree::*side,
                std::vector<Border>& borders) {
  borders.clear();
  for (TokenId id = piece; id != kNoToken; id = trees[static_cast<std::size_t>(id)].*side) {
    borders.push_back({id, trees[static_cast<std::size_t>(id)].rank});
  }
  std::reverse(borders.begin(), borders.end());
}

Bpe::Bpe(Vocab& vocab, std::span<const Merge> merges, BpeOptions options)
    : vocab_(vocab), options_(std::move(options)) {
  merges_.resize(std::bit_ceil(merges.size() * 2 + 2));
  mask_ = merges_.size() - 1;
  for (const Merge& merge : merges) insert_merge(merge);
  single_.fill(kNoToken);
  const std::size_t singles = options_.byte_level ? 256 : 128;
  for (std::size_t byte = 0; byte < singles; ++byte) {
    const char c = static_cast<char>(static_cast<std::uint8_t>(byte));
    single_[byte] = vocab_.id_of({&c, 1});
  }
  mark_direct_pieces(merges);
  if (!options_.byte_level) find_joins();
}

void Bpe::insert_merge(const Merge& merge) {
  const std::uint64_t pair = pair_key(merge.left, merge.right);
  std::size_t i = hash_number(pair) & mask_;
  while (merges_[i].pair != kFree && merges_[i].pair != pair) i = (i + 1) & mask_;
  merges_[i] = {pair, merge.rank, merge.result};
}

const Bpe::Slot* Bpe::find_merge(TokenId left, TokenId right) const {
  const std::uint64_t pair = pair_key(left, right);
  for (std::size_t i = hash_number(pair) & mask_;; i = (i + 1) & mask_) {
    if (merges_[i].pair == pair) return &merges_[i];
    if (merges_[i].pair == kFree) return nullptr;
  }
}

// A piece AB made of settled A and B is what its text merges to when no merge crosses the border
// between A and B before both are complete. Only the symbols at the border matter: the right border
// of A's tree against the left border of B's, in the order in which they form. Anything unusual
// (ranks that fall, a part that is not settled yet) leaves the piece unmarked, which costs time,
// never correctness.
void Bpe::mark_direct_pieces(std::span<const Merge> merges) {
  std::size_t count = vocab_.size();
  for (const auto& [c, id] : options_.extra_symbols) {
    count = std::max(count, static_cast<std::size_t>(id) + 1);
  }
  std::vector<Tree> trees(count);
  for (std::size_t id = 0; id < vocab_.size(); ++id) {
    const std::string_view piece = vocab_.piece(static_cast<TokenId>(id));
    if (piece.empty()) continue;
    const std::size_t symbol = options_.byte_level ? 1 : utf8_length(piece[0]);
    if (piece.size() != symbol) continue;
    trees[id].is_settled = true;
    if (options_.is_unused.empty() || options_.is_unused[id] == 0) {
      vocab_.mark_direct(static_cast<TokenId>(id));
    }
  }
  for (std::size_t id = vocab_.size(); id < count; ++id) trees[id].is_settled = true;

  std::vector<Border> lefts, rights;
  for (const Merge& merge : merges) {
    Tree& tree = trees[static_cast<std::size_t>(merge.result)];
    const Tree& a = trees[static_cast<std::size_t>(merge.left)];
    const Tree& b = trees[static_cast<std::size_t>(merge.right)];
    if (tree.is_settled || !a.is_settled || !b.is_settled) continue;
    if ((a.left != kNoToken && a.rank >= merge.rank) ||
        (b.left != kNoToken && b.rank >= merge.rank)) {
      continue;
    }
    climb(trees, merge.left, &Tree::right, lefts);
    climb(trees, merge.right, &Tree::left, rights);
    if (!stay_apart_until(merge, lefts, rights)) continue;
    tree = {merge.left, merge.right, merge.rank, true};
    const auto result = static_cast<std::size_t>(merge.result);
    if (options_.is_unused.empty() || options_.is_unused[result] == 0)
      vocab_.mark_direct(merge.result);
  }
}

// Whether nothing merges across the border between the two parts before each of them is complete.
bool Bpe::stay_apart_until(const Merge& merge, std::span<const Border> lefts,
                           std::span<const Border> rights) const {
  std::size_t i = 0, j = 0;
  for (;;) {
    const Slot* crossing = find_merge(lefts[i].id, rights[j].id);
    const std::uint32_t rank = crossing == nullptr ? kNoRank : crossing->rank;
    const std::uint32_t left_next = i + 1 < lefts.size() ? lefts[i + 1].rank : kNoRank;
    const std::uint32_t right_next = j + 1 < rights.size() ? rights[j + 1].rank : kNoRank;
    if (left_next == kNoRank && right_next == kNoRank) {
      return crossing != nullptr && rank == merge.rank && crossing->result == merge.result;
    }
    // Of equal ranks the leftmost merges first: the left part's, then the crossing, then the right
    // part's.
    if (left_next <= right_next) {
      if (rank < left_next) return false;
      ++i;
    } else {
      if (rank <= right_next) return false;
      ++j;
    }
  }
}

void Bpe::find_joins() {
  splits_at_spaces_ = vocab_.id_of(kSpaceMark) != kNoToken;
  for (std::size_t id = 0; id < vocab_.size(); ++id) {
    const std::string_view piece = vocab_.piece(static_cast<TokenId>(id));
    for (std::size_t at = piece.find(kSpaceMark, 1); at != std::string_view::npos;
         at = piece.find(kSpaceMark, at + 1)) {
      joins_.push_back(utf8_last(piece.substr(0, at)).code_point);
    }
  }
  joins_.push_back(kSpaceMarkChar);
  std::sort(joins_.begin(), joins_.end());
  joins_.erase(std::unique(joins_.begin(), joins_.end()), joins_.end());
}

bool Bpe::splits_before_space(std::string_view before) const {
  return !std::binary_search(joins_.begin(), joins_.end(), utf8_last(before).code_point);
}

void Bpe::encode(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
  if (!splits_at_spaces_ || options_.ignore_merges) {
    encode_word(text, scratch, out);
    return;
  }
  std::size_t begin = 0;
  for (std::size_t at = text.find(kSpaceMark, 1); at != std::string_view::npos;
       at = text.find(kSpaceMark, at + kSpaceMark.size())) {
    if (!splits_before_space(text.substr(begin, at - begin))) continue;
    encode_word(text.substr(begin, at - begin), scratch, out);
    begin = at;
  }
  encode_word(text.substr(begin), scratch, out);
}

void Bpe::encode_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.empty()) return;
  const std::uint64_t hash = hash_bytes(word);
  const Vocab::Found found = vocab_.find(word, hash);
  if (found.is_direct || (options_.ignore_merges && found.id != kNoToken)) {
    out.push_back(found.id);
    return;
  }
  const bool is_cached = scratch.cache != nullptr && word.size() <= WordCache::kMaxBytes;
  if (is_cached) {
    const std::span<const TokenId> known = scratch.cache->find(word, hash);
    if (!known.empty()) {
      out.insert(out.end(), known.begin(), known.end());
      return;
    }
  }
  if (!scratch.spend(16 * word.size())) return;
  scratch.ids.clear();
  make_symbols(word, scratch.ids);
  scratch.parts.clear();
  if (scratch.ids.size() <= kSmallWord) {
    merge_small(scratch);
  } else {
    merge_large(scratch);
  }
  const std::size_t first = out.size();
  emit(word, scratch, out);
  if (is_cached) scratch.cache->store(word, hash, std::span(out).subspan(first));
}

void Bpe::make_symbols(std::string_view word, std::vector<TokenId>& ids) const {
  if (options_.byte_level) {
    for (const char c : word) {
      const TokenId id = single_[static_cast<std::uint8_t>(c)];
      if (id != kNoToken) ids.push_back(id);
    }
    return;
  }
  bool after_unknown = false;
  for (std::size_t i = 0; i < word.size();) {
    const Utf8Char c = utf8_at(word, i);
    const std::string_view character = word.substr(i, c.bytes);
    i += c.bytes;
    TokenId id = c.bytes == 1 ? single_[c.code_point] : vocab_.id_of(character);
    if (id == kNoToken && options_.falls_back_late) {
      // Unknown to the merges too: the code point itself, above every symbol, for emit() to
      // resolve.
      const auto extra = options_.extra_symbols.find(c.code_point);
      id = extra != options_.extra_symbols.end()
               ? extra->second
               : static_cast<TokenId>(0x40000000 | static_cast<std::int32_t>(c.code_point));
    }
    if (id != kNoToken) {
      ids.push_back(id);
      after_unknown = false;
      continue;
    }
    const std::size_t before = ids.size();
    append_fallback(character, ids);
    const bool is_unknown = ids.size() == before + 1 && ids.back() == options_.unknown;
    if (is_unknown && after_unknown && options_.fuse_unknown) ids.pop_back();
    after_unknown = is_unknown;
  }
}

void Bpe::append_fallback(std::string_view character, std::vector<TokenId>& out) const {
  const auto piece_of = [&](char c) { return options_.byte_pieces[static_cast<std::uint8_t>(c)]; };
  if (options_.byte_fallback && std::all_of(character.begin(), character.end(),
                                            [&](char c) { return piece_of(c) != kNoToken; })) {
    for (const char c : character) out.push_back(piece_of(c));
  } else if (options_.unknown != kNoToken) {
    out.push_back(options_.unknown);
  }
}

// Scans for the best pair each time: quadratic, and faster than a queue for the words of natural
// text.
void Bpe::merge_small(Scratch& scratch) const {
  std::vector<TokenId>& ids = scratch.ids;
  std::array<std::uint32_t, kSmallWord> ranks;
  std::array<TokenId, kSmallWord> results;
  std::size_t count = ids.size();
  const auto look_up = [&](std::size_t i) {
    const Slot* merge = i + 1 < count ? find_merge(ids[i], ids[i + 1]) : nullptr;
    ranks[i] = merge == nullptr ? kNoRank : merge->rank;
    results[i] = merge == nullptr ? kNoToken : merge->result;
  };
  for (std::size_t i = 0; i < count; ++i) look_up(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    if (!options_.is_unused.empty()) {
      scratch.parts.push_back({results[best], ids[best], ids[best + 1]});
    }
    ids[best] = results[best];
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  ids.resize(count);
}

void Bpe::merge_large(Scratch& scratch) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  std::vector<std::uint64_t>& heap = scratch.heap;
  const auto count = static_cast<std::int32_t>(scratch.ids.size());
  symbols.resize(scratch.ids.size());
  heap.clear();
  const auto at = [&](std::int32_t i) -> Scratch::Symbol& {
    return symbols[static_cast<std::size_t>(i)];
  };
  // Returns whether there is a merge of i with its successor.
  const auto look_up = [&](std::int32_t i) {
    Scratch::Symbol& symbol = at(i);
    const Slot* merge = symbol.next < 0 ? nullptr : find_merge(symbol.id, at(symbol.next).id);
    symbol.rank = merge == nullptr ? kNoRank : merge->rank;
    symbol.merged = merge == nullptr ? kNoToken : merge->result;
    return merge != nullptr;
  };
  const auto entry_of = [&](std::int32_t i) {
    return std::uint64_t{at(i).rank} << 32 | static_cast<std::uint32_t>(i);
  };
  for (std::int32_t i = 0; i < count; ++i) {
    at(i) = {scratch.ids[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, kNoRank,
             kNoToken};
  }
  for (std::int32_t i = 0; i < count; ++i) {
    if (look_up(i)) heap.push_back(entry_of(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](std::int32_t i) {
    if (!look_up(i)) return;
    heap.push_back(entry_of(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto i = static_cast<std::int32_t>(heap.back() & UINT32_MAX);
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    heap.pop_back();
    if (at(i).rank != rank || at(i).id == kNoToken) continue;  // the pair is gone
    const std::int32_t right = at(i).next;
    if (!options_.is_unused.empty())
      scratch.parts.push_back({at(i).merged, at(i).id, at(right).id});
    at(i).id = at(i).merged;
    at(i).next = at(right).next;
    if (at(i).next >= 0) at(at(i).next).previous = i;
    at(right).id = kNoToken;
    push(i);
    if (at(i).previous >= 0) push(at(i).previous);
  }
  scratch.ids.clear();
  for (std::int32_t i = 0; i >= 0; i = at(i).next) scratch.ids.push_back(at(i).id);
}

void Bpe::emit(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (!options_.falls_back_late) {
    out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
    return;
  }
  // Symbols left over are pieces or single characters; a walk over the word tells which characters.
  std::size_t position = 0;
  bool after_unknown = false;
  std::vector<TokenId> pending;  // pieces that are UNUSED come apart here, last part first
  std::unordered_map<TokenId, Scratch::Part> parts;  // of those, as they were last made
  for (const Scratch::Part& part : scratch.parts) {
    if (vocab_.contains(part.whole) &&
        options_.is_unused[static_cast<std::size_t>(part.whole)] != 0)
      parts.insert_or_assign(part.whole, part);
  }
  for (const TokenId symbol : scratch.ids) {
    if (!vocab_.contains(symbol)) {
      const std::string_view character = word.substr(position, utf8_length(word[position]));
      position += character.size();
      const std::size_t before = out.size();
      append_fallback(character, out);
      const bool is_unknown = out.size() == before + 1 && out.back() == options_.unknown;
      if (is_unknown && after_unknown && options_.fuse_unknown) out.pop_back();
      after_unknown = is_unknown;
      continue;
    }
    after_unknown = false;
    position += vocab_.piece(symbol).size();
    pending.assign(1, symbol);
    while (!pending.empty()) {
      const TokenId id = pending.back();
      pending.pop_back();
      const auto part = parts.find(id);
      if (part == parts.end()) {
        out.push_back(vocab_.contains(id) ? id : options_.unknown);
      } else {
        pending.push_back(part->second.right);
        pending.push_back(part->second.left);
      }
    }
  }
}

std::vector<Merge> merges_from_scores(const Vocab& vocab, std::span<const float> scores,
                                      BpeOptions& options) {
  CHECK(scores.size() == vocab.size());
  auto next_extra = static_cast<TokenId>(vocab.size());
  const auto symbol_of = [&](std::string_view text, bool is_character) {
    const TokenId id = vocab.id_of(text);
    if (id != kNoToken || !is_character) return id;
    const auto [extra, is_new] =
        options.extra_symbols.try_emplace(utf8_at(text, 0).code_point, next_extra);
    if (is_new) ++next_extra;
    return extra->second;
  };
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < vocab.size(); ++id) {
    const std::string_view piece = vocab.piece(static_cast<TokenId>(id));
    if (piece.empty() || vocab.id_of(piece) != static_cast<TokenId>(id)) continue;
    const std::size_t last = piece.size() - utf8_last(piece).bytes;
    for (std::size_t at = utf8_length(piece[0]); at < piece.size(); at += utf8_length(piece[at])) {
      const TokenId left = symbol_of(piece.substr(0, at), at == utf8_length(piece[0]));
      if (left == kNoToken) continue;
      const TokenId right = symbol_of(piece.substr(at), at == last);
      if (right != kNoToken) merges.push_back({left, right, static_cast<TokenId>(id), 0});
    }
  }
  const auto score = [&](const Merge& merge) {
    return scores[static_cast<std::size_t>(merge.result)];
  };
  std::stable_sort(merges.begin(), merges.end(),
                   [&](const Merge& a, const Merge& b) { return score(a) > score(b); });
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    if (i > 0 && score(merges[i]) != score(merges[i - 1])) ++rank;
    merges[i].rank = rank;
  }
  return merges;
}

}  // namespace llorch::tokenizer
