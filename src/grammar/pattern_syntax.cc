#include "grammar/pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace llorch::grammar {
namespace {

using Kind = PatternNode::Kind;

CharSet digits() {
  return {{'0', '9'}};
}
CharSet word() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}
CharSet space() {
  return {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
CharSet any_but_line_ends() {
  return inverted({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<ParsedPattern> parse() {
    std::vector<PatternBranch> branches = read_branches(0);
    if (!failure_ && at_ < text_.size()) fail(ErrorCode::InvalidArgument, "a ) without a (");
    if (failure_) return *failure_;
    out_.branches = std::move(branches);
    return std::move(out_);
  }

 private:
  void fail(ErrorCode code, std::string_view what) {
    if (!failure_) failure_ = Error{code, fmt::format("{} at byte {}", what, at_)};
  }
  bool is_done() const { return failure_ || at_ >= text_.size(); }
  bool follows(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool take(std::string_view what) {
    if (failure_ || !follows(what)) return false;
    at_ += what.size();
    return true;
  }

  std::size_t add(PatternNode node) {
    if (out_.nodes.size() >= kMaxPatternParts) fail(ErrorCode::TooLarge, "too many parts");
    out_.nodes.push_back(std::move(node));
    return out_.nodes.size() - 1;
  }

  // The alternatives of the expression or of a lookahead, where anchors have their place.
  std::vector<PatternBranch> read_branches(std::size_t depth) {
    std::vector<PatternBranch> branches;
    if (depth > kMaxPatternDepth) fail(ErrorCode::TooLarge, "groups nest too deep");
    do {
      PatternBranch branch;
      branch.at_start = take("^");
      while (branch.at_start && (follows("(?!") || follows("(?="))) {
        PatternBranch::Look look;
        look.is_negative = follows("(?!");
        at_ += 3;
        look.branches = read_branches(depth + 1);
        if (!take(")")) fail(ErrorCode::InvalidArgument, "a group without an end");
        if (failure_) return branches;
        branch.looks.push_back(std::move(look));
      }
      branch.body = read_sequence(depth);
      branch.at_end = take("$");
      if (branch.at_end && !is_done() && !follows("|") && !follows(")"))
        fail(ErrorCode::Unsupported, "an anchor that is not at the end");
      branches.push_back(std::move(branch));
    } while (take("|"));
    return branches;
  }

  std::size_t read_alternatives(std::size_t depth) {
    if (depth > kMaxPatternDepth) {
      fail(ErrorCode::TooLarge, "groups nest too deep");
      return 0;
    }
    PatternNode node{.kind = Kind::Alternatives};
    do {
      node.children.push_back(read_sequence(depth));
      if (follows("$")) fail(ErrorCode::Unsupported, "an anchor within a group");
    } while (take("|"));
    return add(std::move(node));
  }

  std::size_t read_sequence(std::size_t depth) {
    PatternNode node{.kind = Kind::Sequence};
    while (!is_done() && !follows("|") && !follows(")") && !follows("$")) {
      const std::size_t atom = read_atom(depth);
      if (failure_) break;
      node.children.push_back(read_quantifier(atom));
    }
    return add(std::move(node));
  }

  std::size_t read_atom(std::size_t depth) {
    if (take("(")) return read_group(depth);
    if (follows("^")) fail(ErrorCode::Unsupported, "an anchor that is not at the beginning");
    if (follows("*") || follows("+") || follows("?"))
      fail(ErrorCode::InvalidArgument, "a quantifier without anything before it");
    if (take("[")) return add({.kind = Kind::Chars, .chars = read_class()});
    if (take(".")) return add({.kind = Kind::Chars, .chars = any_but_line_ends()});
    if (take("\\")) return add({.kind = Kind::Chars, .chars = read_escape(false)});
    const std::uint32_t c = read_char();
    return add({.kind = Kind::Chars, .chars = {{c, c}}});
  }

  std::size_t read_group(std::size_t depth) {
    if (take("?")) {
      if (follows("=") || follows("!"))
        fail(ErrorCode::Unsupported, "a lookahead that is not right after ^");
      if (follows("<=") || follows("<!")) fail(ErrorCode::Unsupported, "a lookbehind");
      if (take("<")) {  // a name, of no meaning here
        while (!is_done() && !follows(">")) ++at_;
        if (!take(">")) fail(ErrorCode::InvalidArgument, "a group's name without an end");
      } else if (!take(":")) {
        fail(ErrorCode::Unsupported, "a group of an unknown kind");
      }
    }
    const std::size_t inner = read_alternatives(depth + 1);
    if (!take(")")) fail(ErrorCode::InvalidArgument, "a group without an end");
    return inner;
  }

  std::optional<std::uint32_t> read_number() {
    std::uint32_t value = 0;
    bool any = false;
    while (!is_done() && text_[at_] >= '0' && text_[at_] <= '9') {
      value = std::min<std::uint32_t>(value * 10 + static_cast<std::uint32_t>(text_[at_] - '0'),
                                      1'000'000);
      any = true;
      ++at_;
    }
    if (!any) return std::nullopt;
    return value;
  }

  std::size_t read_quantifier(std::size_t atom) {
    PatternNode node{.kind = Kind::Repeat, .children = {atom}};
    if (take("*")) {
    } else if (take("+")) {
      node.min = 1;
    } else if (take("?")) {
      node.max = 1;
    } else if (take("{")) {
      const std::optional<std::uint32_t> low = read_number();
      node.min = low.value_or(0);
      node.max = node.min;
      if (take(",")) node.max = read_number().value_or(UINT32_MAX);
      if (!low || !take("}") || node.max < node.min)
        fail(ErrorCode::InvalidArgument, "a quantifier that is none");
    } else {
      return atom;
    }
    take("?");  // as few as possible: the same texts
    return add(std::move(node));
  }

  // One character of valid UTF-8.
  std::uint32_t read_char() {
    if (is_done()) {
      fail(ErrorCode::InvalidArgument, "an end too early");
      return 0;
    }
    const auto first = static_cast<unsigned char>(text_[at_++]);
    if (first < 0x80) return first;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    std::uint32_t c = first & (0x3FU >> static_cast<unsigned>(more));
    for (int i = 0; i < more && at_ < text_.size(); ++i)
      c = c << 6U | (static_cast<unsigned char>(text_[at_++]) & 0x3FU);
    return c;
  }

  std::uint32_t read_hex(std::size_t count) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const char c = is_done() ? '?' : text_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) {
        fail(ErrorCode::InvalidArgument, "an escape without its digits");
        return 0;
      }
      value = value * 16 + static_cast<std::uint32_t>(digit);
      ++at_;
    }
    return value;
  }

  CharSet read_unicode() {
    std::uint32_t c = 0;
    if (take("{")) {
      while (!is_done() && !follows("}") && c <= kMaxScalar) c = c * 16 + read_hex(1);
      if (!take("}")) fail(ErrorCode::InvalidArgument, "an escape without an end");
    } else {
      c = read_hex(4);
      if (c >= 0xD800 && c <= 0xDBFF && take("\\u")) {
        const std::uint32_t low = read_hex(4);
        c = 0x10000 + ((c - 0xD800) << 10U) + (low - 0xDC00);
      }
    }
    if (c > kMaxScalar || (c >= 0xD800 && c <= 0xDFFF))
      fail(ErrorCode::Unsupported, "half of a surrogate pair");
    return {{c, c}};
  }

  CharSet read_escape(bool in_class) {
    if (is_done()) {
      fail(ErrorCode::InvalidArgument, "a \\ at the end");
      return {};
    }
    const char c = text_[at_++];
    const auto one = [](std::uint32_t value) { return CharSet{{value, value}}; };
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return inverted(digits());
      case 'w':
        return word();
      case 'W':
        return inverted(word());
      case 's':
        return space();
      case 'S':
        return inverted(space());
      case 't':
        return one('\t');
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'x':
        return one(read_hex(2));
      case 'u':
        return read_unicode();
      case 'b':
        if (in_class) return one('\b');
        fail(ErrorCode::Unsupported, "a word boundary");
        return {};
      default:
        break;
    }
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_letter || (c >= '1' && c <= '9')) {
      fail(ErrorCode::Unsupported, fmt::format("the escape \\{}", c));
      return {};
    }
    --at_;
    return one(read_char());
  }

  CharSet read_class() {
    const bool is_inverted = take("^");
    CharSet set;
    while (!is_done() && !follows("]")) {
      CharSet low = take("\\") ? read_escape(true) : one_char();
      const bool is_single = low.size() == 1 && low[0].low == low[0].high;
      if (is_single && follows("-") && !follows("-]")) {
        ++at_;
        const CharSet high = take("\\") ? read_escape(true) : one_char();
        const bool is_range =
            high.size() == 1 && high[0].low == high[0].high && low[0].low <= high[0].low;
        if (!is_range) fail(ErrorCode::InvalidArgument, "a range that is none");
        if (failure_) return {};
        low[0].high = high[0].high;
      }
      set.insert(set.end(), low.begin(), low.end());
    }
    if (!take("]")) fail(ErrorCode::InvalidArgument, "a class without an end");
    set = normalized(std::move(set));
    return is_inverted ? inverted(set) : set;
  }

  CharSet one_char() {
    const std::uint32_t c = read_char();
    return {{c, c}};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  ParsedPattern out_;
  std::optional<Error> failure_;
};

}  // namespace

CharSet normalized(CharSet set) {
  std::sort(set.begin(), set.end(),
            [](const CharRange& a, const CharRange& b) { return a.low < b.low; });
  CharSet out;
  for (const CharRange& range : set) {
    if (!out.empty() && range.low <= out.back().high + 1) {
      out.back().high = std::max(out.back().high, range.high);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CharSet inverted(const CharSet& set) {
  CharSet out;
  std::uint32_t next = 0;
  for (const CharRange& range : set) {
    if (range.low > next) out.push_back({next, range.low - 1});
    next = range.high + 1;
  }
  if (next <= kMaxScalar) out.push_back({next, kMaxScalar});
  return out;
}

Result<ParsedPattern> parse_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return Error{ErrorCode::TooLarge, fmt::format("an expression of {} bytes; at most {}",
                                                  pattern.size(), kMaxPatternBytes)};
  }
  return Parser(pattern).parse();
}

}  // namespace llorch::grammar
