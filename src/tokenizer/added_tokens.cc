#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

bool is_word_character(char32_t c) {
  const UnicodeTable& table = UnicodeTable::instance();
  const Category category = table.category(c);
  return table.is_letter(c) || table.is_mark(c) || category == Category::Nd ||
         category == Category::Nl || category == Category::Pc || c == 0x200C || c == 0x200D;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word_character(utf8_last(text.substr(0, begin)).code_point)) return false;
  return end == text.size() || !is_word_character(utf8_at(text, end).code_point);
}

std::size_t spaces_before(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit) {
    const Utf8Char c = utf8_last(text.substr(0, end));
    if (!UnicodeTable::instance().is_space(c.code_point)) break;
    end -= c.bytes;
  }
  return end;
}

std::size_t spaces_after(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const Utf8Char c = utf8_at(text, begin);
    if (!UnicodeTable::instance().is_space(c.code_point)) break;
    begin += c.bytes;
  }
  return begin;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher() : nodes_(1) {}

std::uint32_t AddedTokenMatcher::child(std::uint32_t node, std::uint8_t byte) const {
  const auto& children = nodes_[node].children;
  const auto found =
      std::lower_bound(children.begin(), children.end(), std::pair{byte, std::uint32_t{0}});
  return found != children.end() && found->first == byte ? found->second : 0;
}

void AddedTokenMatcher::add(std::string_view content, std::size_t token_index) {
  std::uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<std::uint8_t>(c);
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      auto& children = nodes_[node].children;
      const std::pair entry{byte, next};
      children.insert(std::lower_bound(children.begin(), children.end(), entry), entry);
      nodes_.emplace_back();
    }
    node = next;
  }
  if (nodes_[node].token_index < 0)
    nodes_[node].token_index = static_cast<std::int32_t>(token_index);
  starts_[static_cast<std::uint8_t>(content[0])] = true;
}

AddedTokenMatcher::Found AddedTokenMatcher::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<std::uint8_t>(text[begin])]) continue;
    Found found;
    std::uint32_t node = 0;
    for (std::size_t i = begin; i < text.size(); ++i) {
      node = child(node, static_cast<std::uint8_t>(text[i]));
      if (node == 0) break;
      if (nodes_[node].token_index < 0) continue;
      found = {begin, i + 1, static_cast<std::size_t>(nodes_[node].token_index), true};
    }
    if (found.ok) return found;
  }
  return {};
}

std::vector<Segment> cut_at_tokens(const AddedTokenMatcher& matcher,
                                   const std::vector<AddedToken>& tokens, std::string_view text,
                                   bool allows_special) {
  std::vector<Segment> segments;
  std::size_t done = 0;
  if (!matcher.empty()) {
    for (auto found = matcher.find(text, 0); found.ok; found = matcher.find(text, found.end)) {
      const AddedToken& token = tokens[found.token_index];
      if (token.is_special && !allows_special) continue;
      if (token.single_word && !stands_alone(text, found.begin, found.end)) continue;
      std::size_t begin = std::max(found.begin, done);
      std::size_t end = std::max(found.end, done);
      if (token.strips_left) begin = spaces_before(text, begin, done);
      if (token.strips_right) end = spaces_after(text, end);
      if (begin > done) segments.push_back({text.substr(done, begin - done), 0, false});
      segments.push_back({text.substr(begin, end - begin), found.token_index, true});
      done = end;
    }
  }
  if (done < text.size()) segments.push_back({text.substr(done), 0, false});
  return segments;
}

}  // namespace llorch::tokenizer
