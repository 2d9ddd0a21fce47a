// A JSON string whose characters follow a PatternAutomaton: bytes and escapes.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "grammar/builder.h"
#include "grammar/pattern.h"

namespace llorch::grammar {
namespace {

constexpr std::uint32_t kSurrogates = 0xD800;
constexpr std::uint32_t kSurrogatesEnd = 0xDFFF;

std::string encoded(std::uint32_t c) {
  const auto tail = [&](unsigned shift) { return static_cast<char>(0x80U | (c >> shift & 0x3FU)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0U | c >> 6U), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0U | c >> 12U), tail(6), tail(0)};
  return {static_cast<char>(0xF0U | c >> 18U), tail(12), tail(6), tail(0)};
}

// Adds the edges of one automaton to a rule.
class StringWriter {
 public:
  StringWriter(Builder& builder, RuleId rule) : builder_(builder), rule_(rule) {}

  void add(const PatternAutomaton& automaton, NodeId end) {
    std::vector<NodeId> nodes;
    for (std::size_t i = 0; i < automaton.states.size(); ++i)
      nodes.push_back(builder_.add_node(rule_));
    builder_.add_byte(builder_.start(rule_), '"', nodes[0]);
    for (std::size_t i = 0; i < nodes.size() && !builder_.is_full(); ++i) {
      const PatternAutomaton::State& state = automaton.states[i];
      if (state.is_final) builder_.add_byte(nodes[i], '"', end);
      escape_.reset();
      unicode_.fill(std::nullopt);
      for (const PatternAutomaton::Step& step : state.steps)
        add_chars(nodes[i], step.chars, nodes[step.target]);
    }
  }

 private:
  void add_chars(NodeId from, CharRange chars, NodeId to) {
    for (std::uint32_t c = chars.low; c <= std::min<std::uint32_t>(chars.high, 0x1F); ++c)
      add_escaped(from, c, to);
    for (const std::uint32_t c : {std::uint32_t{'"'}, std::uint32_t{'\\'}}) {
      if (c >= chars.low && c <= chars.high) add_escaped(from, c, to);
    }
    // Without what must be escaped, in pieces of equally many bytes.
    static constexpr CharRange kPieces[] = {{0x20, 0x21},
                                            {0x23, 0x5B},
                                            {0x5D, 0x7F},
                                            {0x80, 0x7FF},
                                            {0x800, kSurrogates - 1},
                                            {kSurrogatesEnd + 1, 0xFFFF},
                                            {0x10000, 0x10FFFF}};
    for (const CharRange& piece : kPieces) {
      const std::uint32_t low = std::max(piece.low, chars.low);
      const std::uint32_t high = std::min(piece.high, chars.high);
      if (low <= high) add_bytes(from, encoded(low), encoded(high), to);
    }
  }

  // The sequences between two of the same length, in the order of bytes.
  void add_bytes(NodeId from, std::string_view low, std::string_view high, NodeId to) {
    const auto first = static_cast<std::uint8_t>(low[0]);
    const auto last = static_cast<std::uint8_t>(high[0]);
    if (low.size() == 1) return builder_.add_bytes(from, first, last, to, {});
    const std::string least(low.size() - 1, '\x80');
    const std::string most(low.size() - 1, '\xBF');
    const auto lead = [&](std::uint8_t begin, std::uint8_t end, std::string_view low_rest,
                          std::string_view high_rest) {
      const NodeId next = builder_.add_node(rule_);
      builder_.add_bytes(from, begin, end, next, {});
      add_bytes(next, low_rest, high_rest, to);
    };
    if (first == last) return lead(first, last, low.substr(1), high.substr(1));
    std::uint8_t begin = first;
    std::uint8_t end = last;
    if (low.substr(1) != least) {
      lead(first, first, low.substr(1), most);
      ++begin;
    }
    if (high.substr(1) != most) {
      lead(last, last, least, high.substr(1));
      --end;
    }
    if (begin <= end) lead(begin, end, least, most);
  }

  void add_escaped(NodeId from, std::uint32_t c, NodeId to) {
    if (!escape_) {
      escape_ = builder_.add_node(rule_);
      builder_.add_byte(from, '\\', *escape_);
    }
    static constexpr std::pair<char, char> kShort[] = {
        {'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
    for (const auto& [raw, letter] : kShort) {
      if (static_cast<std::uint32_t>(raw) == c) return builder_.add_byte(*escape_, letter, to);
    }
    std::optional<NodeId>& high = unicode_[c >> 4U];  // after \u000 or \u001
    if (!high) {
      high = builder_.add_node(rule_);
      builder_.add_literal(*escape_, c < 16 ? "u000" : "u001", *high);
    }
    builder_.add_byte(*high, "0123456789abcdef"[c & 15U], to);
  }

  Builder& builder_;
  const RuleId rule_;
  // Of the state under way.
  std::optional<NodeId> escape_;
  std::array<std::optional<NodeId>, 2> unicode_;
};

}  // namespace

Result<RuleId> Builder::pattern_rule(std::string_view pattern, CountRange length) {
  const std::pair key(std::string(pattern), length);
  if (const auto found = pattern_rules_.find(key); found != pattern_rules_.end())
    return found->second;
  const Result<PatternAutomaton> automaton =
      compile_pattern(pattern, {length.min, length.max}, pattern_work_);
  if (!automaton.ok()) return automaton.error();
  const RuleId rule = add_rule("");
  pattern_rules_[key] = rule;
  const NodeId end = add_node(rule);
  set_final(end);
  if (!is_full_) StringWriter(*this, rule).add(*automaton, end);
  return rule;
}

}  // namespace llorch::grammar
