#include "grammar/token_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "grammar/automaton.h"

namespace llorch::grammar {

namespace {

constexpr std::size_t kMaxTokenBytes = 65'535;
constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// Ids by their bytes, in the order of a walk: every node is followed by all that is below it.
struct TokenTrie {
  struct Entry {
    std::uint32_t below_end = 0;  // the first entry that is not below this one
    std::uint32_t first_id = 0;   // of those that end here; the next entry's is the end
    std::uint16_t depth = 0;      // bytes so far, this one included
    std::uint8_t byte = 0;
  };
  std::vector<Entry> entries;  // and one at the end that only bounds first_id
  std::vector<TokenId> ids;
  std::size_t max_depth = 0;
};

TokenTrie make_trie(std::span<const std::string> bytes, std::vector<TokenId> ids) {
  const auto text = [&](TokenId id) -> const std::string& {
    return bytes[static_cast<std::size_t>(id)];
  };
  std::sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
    const int order = text(a).compare(text(b));
    return order != 0 ? order < 0 : a < b;
  });
  TokenTrie trie;
  std::vector<std::uint32_t> path;  // the entries of the text before, by depth
  const auto leave = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      trie.entries[path.back()].below_end = static_cast<std::uint32_t>(trie.entries.size());
    }
  };
  std::string_view previous;
  for (std::uint32_t i = 0; i < ids.size(); ++i) {
    const std::string& current = text(ids[i]);
    const auto differs =
        std::mismatch(current.begin(), current.end(), previous.begin(), previous.end());
    const auto common = static_cast<std::size_t>(differs.first - current.begin());
    leave(common);
    for (std::size_t k = common; k < current.size(); ++k) {
      path.push_back(static_cast<std::uint32_t>(trie.entries.size()));
      trie.entries.push_back({.first_id = i,
                              .depth = static_cast<std::uint16_t>(k + 1),
                              .byte = static_cast<std::uint8_t>(current[k])});
    }
    trie.max_depth = std::max(trie.max_depth, current.size());
    previous = current;
  }
  leave(0);
  trie.entries.push_back({.first_id = static_cast<std::uint32_t>(ids.size())});
  trie.ids = std::move(ids);
  return trie;
}

// How many characters start in a text that continues a string at a character's start and stays
// within it; nothing when it does not. Its last character may be cut.
std::optional<std::size_t> count_plain(std::string_view text) {
  std::size_t count = 0;
  std::size_t left = 0;
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (left > 0) {
      if (byte < low || byte > high) return std::nullopt;
      low = 0x80;
      high = 0xBF;
      --left;
      continue;
    }
    ++count;
    if (byte < 0x20 || c == '"' || c == '\\') return std::nullopt;
    if (byte < 0x80) continue;
    if (byte < 0xC2 || byte > 0xF4) return std::nullopt;
    left = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    if (byte == 0xE0) low = 0xA0;
    if (byte == 0xED) high = 0x9F;
    if (byte == 0xF0) low = 0x90;
    if (byte == 0xF4) high = 0x8F;
  }
  return count;
}

// Sets of ids, 64 to a word.
using IdSet = std::vector<std::uint64_t>;

void insert(IdSet& set, TokenId id) {
  set[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (static_cast<unsigned>(id) % 64);
}

bool holds(const IdSet& set, TokenId id) {
  return id >= 0 && static_cast<std::size_t>(id) / 64 < set.size() &&
         (set[static_cast<std::size_t>(id) / 64] >> (static_cast<unsigned>(id) % 64) & 1U) != 0;
}

// Any text can be written with these: what JSON itself needs, and every byte that may end or begin
// a character cut in two by an id. (Characters from U+40000 on are written as escapes.)
Status check_bytes(std::span<const std::string> bytes, const IdSet& ends) {
  std::array<bool, 256> has_id{};
  for (std::size_t id = 0; id < bytes.size(); ++id) {
    if (bytes[id].size() != 1 || holds(ends, static_cast<TokenId>(id))) continue;
    has_id[static_cast<std::uint8_t>(bytes[id][0])] = true;
  }
  for (unsigned byte = 0x20; byte <= 0xF0; ++byte) {
    const bool is_needed = byte != 0x7F && byte != 0xC0 && byte != 0xC1;
    if (!is_needed || has_id[byte]) continue;
    return Error{
        ErrorCode::Unsupported,
        fmt::format("this vocabulary has no id for the byte 0x{:02X} alone, so JSON cannot "
                    "always be written with it; use a model with byte pieces",
                    byte)};
  }
  return ok_status();
}

}  // namespace

struct TokenTableParts {
  std::vector<std::string> bytes;
  IdSet ends;
  TokenTrie plain_trie;
  TokenTrie other_trie;
  // Ids that stay within a string, those with the fewest characters first.
  std::vector<TokenId> plain;
  std::vector<std::size_t> plain_up_to;  // [n]: how many of them have at most n characters
  IdSet all_plain;
};

struct MaskScratch {
  struct Level {
    Readings::Set set;
    std::size_t num_frames = 0;
  };
  explicit MaskScratch(const JsonGrammar& grammar) : readings(grammar) {}
  Readings readings;
  std::vector<Level> levels;
  std::vector<Reading> others;  // those that are not within a string of any characters
  IdSet allowed;
};

TokenTable::TokenTable(std::unique_ptr<const TokenTableParts> parts) : parts_(std::move(parts)) {}
TokenTable::~TokenTable() = default;

Result<std::shared_ptr<const TokenTable>> TokenTable::create(std::span<const std::string> bytes,
                                                             std::span<const TokenId> end_ids) {
  auto parts = std::make_unique<TokenTableParts>();
  parts->bytes.assign(bytes.begin(), bytes.end());
  parts->ends.resize((bytes.size() + 63) / 64);
  bool has_end = false;
  for (const TokenId id : end_ids) {
    if (id < 0 || static_cast<std::size_t>(id) >= bytes.size()) continue;
    insert(parts->ends, id);
    has_end = true;
  }
  if (!has_end) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("no end id within the vocabulary of {}: a constrained generation could "
                    "never end",
                    bytes.size())};
  }
  if (const Status checked = check_bytes(bytes, parts->ends); !checked.ok()) return checked.error();
  std::vector<TokenId> other;
  std::vector<std::pair<std::size_t, TokenId>> plain;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    // No id of more bytes than that is ever worth writing.
    if (bytes[i].empty() || bytes[i].size() > kMaxTokenBytes || holds(parts->ends, id)) continue;
    const std::optional<std::size_t> count = count_plain(bytes[i]);
    if (count) {
      plain.emplace_back(*count, id);
    } else {
      other.push_back(id);
    }
  }
  parts->other_trie = make_trie(bytes, std::move(other));
  std::sort(plain.begin(), plain.end());
  parts->all_plain.resize(parts->ends.size());
  for (const auto& [count, id] : plain) {
    parts->plain_up_to.resize(count + 1, parts->plain.size());
    parts->plain.push_back(id);
    parts->plain_up_to[count] = parts->plain.size();
    insert(parts->all_plain, id);
  }
  parts->plain_trie = make_trie(bytes, parts->plain);
  return std::shared_ptr<const TokenTable>(new TokenTable(std::move(parts)));
}

TokenMasker::TokenMasker(std::shared_ptr<const JsonGrammar> grammar,
                         std::shared_ptr<const TokenTable> table)
    : state_(std::move(grammar)),
      table_(std::move(table)),
      scratch_(std::make_unique<MaskScratch>(*state_.grammar_)) {}
TokenMasker::~TokenMasker() = default;
TokenMasker::TokenMasker(TokenMasker&&) noexcept = default;
TokenMasker& TokenMasker::operator=(TokenMasker&&) noexcept = default;

namespace {

// Marks the ids of the trie that `start` may be followed by. `skips(i, set)` marks all below entry
// i and says so where the readings after it tell.
void walk(const TokenTrie& trie, Readings::Set start, MaskScratch& scratch, auto&& skips) {
  if (start.is_empty()) return;
  Readings& readings = scratch.readings;
  scratch.levels.resize(std::max(scratch.levels.size(), trie.max_depth + 1));
  scratch.levels[0] = {start, readings.num_frames()};
  const std::size_t end = trie.entries.size() - 1;
  for (std::size_t i = 0; i < end;) {
    const TokenTrie::Entry& entry = trie.entries[i];
    const MaskScratch::Level& before = scratch.levels[entry.depth - 1U];
    readings.truncate(before.set, before.num_frames);
    const Readings::Set set = readings.step(before.set, entry.byte);
    if (set.is_empty() || skips(entry, set)) {
      i = entry.below_end;
      continue;
    }
    scratch.levels[entry.depth] = {set, readings.num_frames()};
    for (std::uint32_t k = entry.first_id; k < trie.entries[i + 1].first_id; ++k) {
      insert(scratch.allowed, trie.ids[k]);
    }
    ++i;
  }
}

void walk_other(const TokenTrie& trie, Readings::Set start, MaskScratch& scratch) {
  walk(trie, start, scratch, [](const TokenTrie::Entry&, Readings::Set) { return false; });
}

// Plain ids have no quote, so a reading is within a string after some of their bytes only if it was
// before them: if it takes any characters it takes the rest of every id below.
void walk_plain(const TokenTrie& trie, Readings::Set start, MaskScratch& scratch) {
  walk(trie, start, scratch, [&](const TokenTrie::Entry& entry, Readings::Set set) {
    if (!scratch.readings.takes_any_characters(set)) return false;
    for (std::uint32_t k = entry.first_id; k < trie.entries[entry.below_end].first_id; ++k) {
      insert(scratch.allowed, trie.ids[k]);
    }
    return true;
  });
}

void forbid_others(std::span<const std::uint64_t> allowed, std::span<float> logits) {
  for (std::size_t begin = 0; begin < logits.size(); begin += 64) {
    const std::size_t count = std::min<std::size_t>(64, logits.size() - begin);
    const std::uint64_t word = begin / 64 < allowed.size() ? allowed[begin / 64] : 0;
    if (word == ~std::uint64_t{0}) continue;
    for (std::size_t i = 0; i < count; ++i) {
      if ((word >> i & 1U) == 0) logits[begin + i] = kForbidden;
    }
  }
}

}  // namespace

// Within a string nearly every id is allowed, and most of them need no walk. Readings of one text
// agree on whether it is within a string. One that takes any characters there takes the plain ids
// that are short enough for its maximum; it does not branch on them, and neither do the others
// (constants, names), so none is forgotten for another's sake.
std::span<const std::uint64_t> TokenMasker::find_allowed() {
  const TokenTableParts& table = *table_->parts_;
  if (ended_) return table.ends;
  MaskScratch& scratch = *scratch_;
  const JsonGrammar& grammar = *state_.grammar_;
  scratch.others.clear();
  std::size_t room = 0;  // characters
  for (const Reading& reading : state_.readings_) {
    const Node& node = grammar.nodes[reading.node];
    if (node.is_body) {
      room = std::max<std::size_t>(room, grammar.rules[node.rule].max - reading.count);
    } else {
      scratch.others.push_back(reading);
    }
  }
  if (room >= table.plain_up_to.size()) {
    scratch.allowed = table.all_plain;
  } else {
    scratch.allowed.assign(table.ends.size(), 0);
    for (std::size_t i = 0; i < table.plain_up_to[room]; ++i) {
      insert(scratch.allowed, table.plain[i]);
    }
    walk_plain(table.plain_trie, scratch.readings.load(scratch.others, state_.frames_), scratch);
  }
  walk_other(table.other_trie, scratch.readings.load(state_.readings_, state_.frames_), scratch);
  if (state_.is_complete_) {
    for (std::size_t i = 0; i < table.ends.size(); ++i) scratch.allowed[i] |= table.ends[i];
  }
  return scratch.allowed;
}

void TokenMasker::mask(std::span<float> logits) {
  forbid_others(find_allowed(), logits);
}

void TokenMasker::allow(std::span<std::uint32_t> ids) {
  const std::span<const std::uint64_t> allowed = find_allowed();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t word = i / 2 < allowed.size() ? allowed[i / 2] : 0;
    ids[i] = static_cast<std::uint32_t>(i % 2 == 0 ? word : word >> 32);
  }
}

bool TokenMasker::accept(TokenId id) {
  const TokenTableParts& table = *table_->parts_;
  if (holds(table.ends, id)) {
    if (!ended_ && !state_.is_complete()) return false;
    ended_ = true;
    return true;
  }
  if (ended_ || id < 0 || static_cast<std::size_t>(id) >= table.bytes.size()) return false;
  const std::string& bytes = table.bytes[static_cast<std::size_t>(id)];
  return !bytes.empty() && bytes.size() <= kMaxTokenBytes && state_.advance(bytes);
}

}  // namespace llorch::grammar
