#include "tokenizer/charsmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

// Real rules match a handful of characters; the bound keeps a broken trie from running on.
constexpr std::size_t kMaxRuleBytes = 256;

// The units of a Darts double array, as its format lays out the bits.
bool has_leaf(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
std::uint32_t value(std::uint32_t unit) {
  return unit & 0x7FFFFFFFU;
}
std::uint32_t label(std::uint32_t unit) {
  return unit & (0x80000000U | 0xFFU);
}
std::size_t offset(std::uint32_t unit) {
  return std::size_t{unit >> 10} << ((unit & 0x200U) >> 6);
}

bool is_continuation(char c) {
  return (static_cast<std::uint8_t>(c) & 0xC0) == 0x80;
}

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view bytes) {
  std::uint32_t trie_bytes = 0;
  if (bytes.size() < sizeof trie_bytes) {
    return Error{
        ErrorCode::Corrupt,
        fmt::format("precompiled charsmap of {} bytes, shorter than its header", bytes.size())};
  }
  std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  bytes.remove_prefix(sizeof trie_bytes);
  if (trie_bytes > bytes.size() || trie_bytes % sizeof(std::uint32_t) != 0 || trie_bytes == 0) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("precompiled charsmap announces a trie of {} bytes; {} are left",
                             trie_bytes, bytes.size())};
  }
  Charsmap map;
  map.units_.resize(trie_bytes / sizeof(std::uint32_t));
  std::memcpy(map.units_.data(), bytes.data(), trie_bytes);
  map.contents_ = bytes.substr(trie_bytes);
  if (find_invalid_utf8(map.contents_) != map.contents_.size()) {
    return Error{ErrorCode::Corrupt, "the replacements of the precompiled charsmap are not UTF-8"};
  }
  return map;
}

Charsmap::Replacement Charsmap::longest_match(std::string_view text) const {
  Replacement best;
  std::size_t node = offset(units_[0]);
  const std::size_t limit = std::min(text.size(), kMaxRuleBytes);
  for (std::size_t i = 0; i < limit; ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const std::size_t begin = value(units_[node]);
    if (begin >= contents_.size() || is_continuation(contents_[begin])) break;
    const std::string_view rest = std::string_view(contents_).substr(begin);
    best = {i + 1, rest.substr(0, std::min(rest.find('\0'), rest.size()))};
  }
  // A rule that ends inside a character cannot come from real files.
  if (best.matched < text.size() && is_continuation(text[best.matched])) return {};
  return best;
}

std::string Charsmap::apply(std::string_view text, std::size_t max_bytes) const {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size() && out.size() <= max_bytes;) {
    const Replacement found = longest_match(text.substr(i));
    if (found.matched > 0) {
      out += found.content;
      i += found.matched;
    } else {
      const std::size_t bytes = utf8_length(text[i]);
      out += text.substr(i, bytes);
      i += bytes;
    }
  }
  return out;
}

}  // namespace llorch::tokenizer
