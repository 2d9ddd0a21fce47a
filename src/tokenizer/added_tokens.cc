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

bool is_white(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

bool has_ends(std::string_view text, std::string_view first, std::string_view last) {
  return text.size() > first.size() + last.size() && text.starts_with(first) &&
         text.ends_with(last);
}

bool looks_like_mark(std::string_view content) {
  return (has_ends(content, "<", ">") || has_ends(content, "[", "]")) &&
         std::none_of(content.begin(), content.end(), is_white);
}

}  // namespace

bool TokenZones::allows(const AddedToken& token, std::size_t begin, std::size_t end) const {
  if (kind_ == Kind::Everywhere) return true;
  if (kind_ == Kind::Nowhere) return !token.is_special;
  if (!token.is_control) return true;
  const auto after =
      std::partition_point(spans_.begin(), spans_.end(),
                           [&](const base::TextSpan& span) { return span.begin <= begin; });
  return after != spans_.begin() && end <= after[-1].end;
}

void mark_control_tokens(std::vector<AddedToken>& tokens,
                         std::span<const std::pair<std::string, std::string>> chat_templates) {
  AddedTokenMatcher marks;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    AddedToken& token = tokens[i];
    token.is_control = token.is_special || has_ends(token.content, "<|", "|>") ||
                       has_ends(token.content, "<｜", "｜>");
    if (!token.is_control && looks_like_mark(token.content)) marks.add(token.content, i);
  }
  if (marks.empty()) return;
  for (const auto& [name, source] : chat_templates) {
    EncodeBudget budget(source.size());
    for (std::size_t at = 0; at < source.size() && !budget.is_spent(); ++at) {
      budget.spend(marks.match_at(source, at, [&](const AddedTokenMatcher::Found& found) {
        tokens[found.token_index].is_control = true;
      }));
    }
    if (!budget.is_spent()) continue;
    // No real file: better too many than one too few.
    for (AddedToken& token : tokens) token.is_control |= looks_like_mark(token.content);
  }
}

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

AddedTokenMatcher::Found AddedTokenMatcher::find(std::string_view text, std::size_t from,
                                                 EncodeBudget& budget) const {
  return find(text, from, budget, [](const Found&) { return true; });
}

AddedTokenMatcher::Found AddedTokenMatcher::find(std::string_view text, std::size_t from,
                                                 EncodeBudget& budget,
                                                 const Filter& accepts) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<std::uint8_t>(text[begin])]) continue;
    Found longest;
    const std::size_t looked_at = match_at(text, begin, [&](const Found& found) {
      if (accepts(found)) longest = found;
    });
    if (!budget.spend(4 * looked_at)) return {};
    if (longest.ok) return longest;
  }
  return {};
}

std::vector<Segment> cut_at_found(const TokenFinder& find, const std::vector<AddedToken>& tokens,
                                  std::string_view text) {
  std::vector<Segment> segments;
  std::size_t done = 0;
  for (auto found = find(text, 0); found.ok; found = find(text, found.end)) {
    const AddedToken& token = tokens[found.token_index];
    if (token.single_word && !stands_alone(text, found.begin, found.end)) continue;
    std::size_t begin = std::max(found.begin, done);
    std::size_t end = std::max(found.end, done);
    if (token.strips_left) begin = spaces_before(text, begin, done);
    if (token.strips_right) end = spaces_after(text, end);
    if (begin > done) segments.push_back({text.substr(done, begin - done), 0, false});
    segments.push_back({text.substr(begin, end - begin), found.token_index, true});
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done), 0, false});
  return segments;
}

std::vector<Segment> cut_at_tokens(const AddedTokenMatcher& matcher,
                                   const std::vector<AddedToken>& tokens, std::string_view text,
                                   const TokenZones& zones, EncodeBudget& budget) {
  if (matcher.empty()) {
    if (text.empty()) return {};
    return {{text, 0, false}};
  }
  const auto allowed = [&](const AddedTokenMatcher::Found& found) {
    return zones.allows(tokens[found.token_index], found.begin, found.end);
  };
  if (zones.has_spans()) {
    return cut_at_found([&](std::string_view all,
                            std::size_t from) { return matcher.find(all, from, budget, allowed); },
                        tokens, text);
  }
  // The Rust library looks for all tokens and then passes over those that do not count, with
  // whatever else lies in them.
  return cut_at_found(
      [&](std::string_view all, std::size_t from) {
        auto found = matcher.find(all, from, budget);
        while (found.ok && !allowed(found)) found = matcher.find(all, found.end, budget);
        return found;
      },
      tokens, text);
}

}  // namespace llorch::tokenizer
