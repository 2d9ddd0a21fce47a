// Expression → nondeterministic automaton → deterministic ones, which lookahead and anchors
// combine.
#include "grammar/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "grammar/pattern_syntax.h"

namespace llorch::grammar {
namespace {

using Kind = PatternNode::Kind;

constexpr std::int32_t kNone = -1;

// Deterministic; `next` has one entry for each state and class of characters, kNone where the text
// can match no more. State 0 is the first.
struct Dfa {
  std::vector<std::int32_t> next;
  std::vector<bool> is_final;
  std::size_t size() const { return is_final.size(); }
};

class Compiler {
 public:
  Compiler(ParsedPattern pattern, std::size_t& work) : pattern_(std::move(pattern)), spent_(work) {
    find_classes();
  }

  Result<PatternAutomaton> compile(PatternLength length) {
    Dfa all = of_branches(pattern_.branches, false);
    const bool is_limited = length.min > 0 || length.max != UINT32_MAX;
    if (is_limited && !failure_) all = combine(all, of_length(length), true);
    if (failure_) return *failure_;
    return finished(all);
  }

 private:
  struct Nfa {
    struct State {
      std::vector<std::uint32_t> empty;  // moves without a character
      std::vector<std::pair<const CharSet*, std::uint32_t>> on_chars;
    };
    std::vector<State> states;
  };

  bool spend(std::size_t work) {
    spent_ += work;
    if (spent_ > kMaxPatternWork) fail("takes too long to compile");
    return !failure_;
  }
  void fail(std::string_view what) {
    if (!failure_) failure_ = Error{ErrorCode::TooLarge, std::string(what)};
  }

  // Characters that no set tells apart are one class; the first of each.
  void find_classes() {
    std::vector<std::uint32_t> begins = {0, kMaxScalar + 1};
    for (const PatternNode& node : pattern_.nodes) {
      for (const CharRange& range : node.chars) {
        begins.push_back(range.low);
        begins.push_back(range.high + 1);
      }
    }
    std::sort(begins.begin(), begins.end());
    begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
    begins_ = std::move(begins);
  }
  std::size_t num_classes() const { return begins_.size() - 1; }

  std::uint32_t add_state(Nfa& nfa) {
    if (nfa.states.size() >= kMaxPatternParts) {
      fail("has too many parts once its repetitions are written out");
      return 0;
    }
    nfa.states.emplace_back();
    return static_cast<std::uint32_t>(nfa.states.size() - 1);
  }

  // From `from` by what the node matches; the state after it.
  std::uint32_t add_node(Nfa& nfa, std::size_t index, std::uint32_t from) {
    const PatternNode& node = pattern_.nodes[index];
    if (!spend(1)) return from;
    switch (node.kind) {
      case Kind::Chars: {
        const std::uint32_t to = add_state(nfa);
        nfa.states[from].on_chars.emplace_back(&node.chars, to);
        return to;
      }
      case Kind::Sequence:
        for (const std::size_t child : node.children) from = add_node(nfa, child, from);
        return from;
      case Kind::Alternatives: {
        std::vector<std::uint32_t> ends;
        for (const std::size_t child : node.children) {
          const std::uint32_t begin = add_state(nfa);
          nfa.states[from].empty.push_back(begin);
          ends.push_back(add_node(nfa, child, begin));
        }
        const std::uint32_t to = add_state(nfa);
        for (const std::uint32_t end : ends) nfa.states[end].empty.push_back(to);
        return to;
      }
      case Kind::Repeat:
        return add_repeat(nfa, node, from);
    }
    return from;
  }

  std::uint32_t add_repeat(Nfa& nfa, const PatternNode& node, std::uint32_t from) {
    const std::size_t child = node.children[0];
    for (std::uint32_t i = 0; i < node.min && !failure_; ++i) from = add_node(nfa, child, from);
    if (node.max == UINT32_MAX) {
      const std::uint32_t loop = add_state(nfa);
      nfa.states[from].empty.push_back(loop);
      const std::uint32_t end = add_node(nfa, child, loop);
      nfa.states[end].empty.push_back(loop);
      return loop;
    }
    const std::uint32_t end = add_state(nfa);
    nfa.states[from].empty.push_back(end);
    for (std::uint32_t i = node.min; i < node.max && !failure_; ++i) {
      from = add_node(nfa, child, from);
      nfa.states[from].empty.push_back(end);
    }
    return end;
  }

  void add_any(Nfa& nfa, std::uint32_t state) {
    static const CharSet any = {{0, kMaxScalar}};
    nfa.states[state].on_chars.emplace_back(&any, state);
  }

  // The whole texts that a branch's body accepts. In a lookahead what follows is free.
  Dfa of_body(const PatternBranch& branch) {
    Nfa nfa;
    const std::uint32_t first = add_state(nfa);
    if (!branch.at_start) add_any(nfa, first);
    const std::uint32_t begin = add_state(nfa);
    nfa.states[first].empty.push_back(begin);
    const std::uint32_t last = add_node(nfa, branch.body, begin);
    const std::uint32_t end = add_state(nfa);
    nfa.states[last].empty.push_back(end);
    if (!branch.at_end) add_any(nfa, end);
    return determined(nfa, end);
  }

  Dfa of_branches(const std::vector<PatternBranch>& branches, bool is_look) {
    std::optional<Dfa> all;
    for (PatternBranch branch : branches) {
      if (failure_) break;
      if (is_look) branch.at_start = true;  // it looks from where it stands
      Dfa one = of_body(branch);
      for (const PatternBranch::Look& look : branch.looks) {
        Dfa seen = of_branches(look.branches, true);
        if (look.is_negative) seen = complement(seen);
        one = combine(one, seen, true);
      }
      all = all ? combine(*all, one, false) : std::move(one);
    }
    return all ? std::move(*all) : Dfa{};
  }

  void close(const Nfa& nfa, std::vector<std::uint32_t>& set, std::vector<bool>& is_in) {
    for (std::size_t i = 0; i < set.size(); ++i) {
      for (const std::uint32_t next : nfa.states[set[i]].empty) {
        if (is_in[next]) continue;
        is_in[next] = true;
        set.push_back(next);
      }
    }
    for (const std::uint32_t state : set) is_in[state] = false;
    std::sort(set.begin(), set.end());
  }

  std::size_t class_of(std::uint32_t c) const {
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), c);
    return static_cast<std::size_t>(after - begins_.begin()) - 1;
  }

  Dfa determined(const Nfa& nfa, std::uint32_t end) {
    Dfa out;
    std::map<std::vector<std::uint32_t>, std::int32_t> known;
    std::vector<std::vector<std::uint32_t>> sets;
    std::vector<bool> is_in(nfa.states.size());
    const auto state_of = [&](std::vector<std::uint32_t> set) {
      close(nfa, set, is_in);
      const auto [found, is_new] = known.emplace(set, static_cast<std::int32_t>(sets.size()));
      if (is_new) sets.push_back(std::move(set));
      return found->second;
    };
    state_of({0});
    for (std::size_t i = 0; i < sets.size() && !failure_; ++i) {
      if (sets.size() > kMaxPatternStates) fail("needs too many states");
      out.is_final.push_back(std::binary_search(sets[i].begin(), sets[i].end(), end));
      std::vector<std::vector<std::uint32_t>> by_class(num_classes());
      for (const std::uint32_t state : sets[i]) {
        for (const auto& [chars, to] : nfa.states[state].on_chars) {
          for (const CharRange& range : *chars) {
            const std::size_t last = class_of(range.high);
            for (std::size_t c = class_of(range.low); c <= last; ++c) by_class[c].push_back(to);
          }
        }
      }
      for (std::vector<std::uint32_t>& targets : by_class) {
        if (!spend(targets.size() + sets[i].size() / 8 + 1)) break;
        std::sort(targets.begin(), targets.end());
        targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
        out.next.push_back(targets.empty() ? kNone : state_of(std::move(targets)));
      }
    }
    return out;
  }

  Dfa complement(const Dfa& from) const {
    Dfa out = from;
    const auto sink = static_cast<std::int32_t>(out.size());
    out.is_final.push_back(false);
    out.next.resize(out.size() * num_classes(), sink);
    for (std::int32_t& next : out.next) next = next == kNone ? sink : next;
    out.is_final.flip();
    return out;
  }

  // Texts that both accept, or one of them.
  Dfa combine(const Dfa& a, const Dfa& b, bool both) {
    Dfa out;
    if (failure_) return out;
    using Pair = std::pair<std::int32_t, std::int32_t>;
    std::map<Pair, std::int32_t> known = {{{0, 0}, 0}};
    std::vector<Pair> pairs = {{0, 0}};
    const auto accepts = [](const Dfa& dfa, std::int32_t state) {
      return state != kNone && dfa.is_final[static_cast<std::size_t>(state)];
    };
    const auto step = [&](const Dfa& dfa, std::int32_t state, std::size_t c) {
      return state == kNone ? kNone : dfa.next[static_cast<std::size_t>(state) * num_classes() + c];
    };
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      if (pairs.size() > kMaxPatternStates) fail("needs too many states");
      if (!spend(num_classes())) return out;
      const Pair at = pairs[i];
      const bool first = accepts(a, at.first);
      const bool second = accepts(b, at.second);
      out.is_final.push_back(both ? first && second : first || second);
      for (std::size_t c = 0; c < num_classes(); ++c) {
        const Pair next = {step(a, at.first, c), step(b, at.second, c)};
        const bool is_dead = both ? next.first == kNone || next.second == kNone
                                  : next.first == kNone && next.second == kNone;
        if (is_dead) {
          out.next.push_back(kNone);
          continue;
        }
        const auto [found, is_new] = known.emplace(next, static_cast<std::int32_t>(pairs.size()));
        if (is_new) pairs.push_back(next);
        out.next.push_back(found->second);
      }
    }
    return out;
  }

  Dfa of_length(PatternLength length) {
    Dfa out;
    const bool is_open = length.max == UINT32_MAX;
    const std::size_t last = is_open ? length.min : length.max;
    if (last >= kMaxPatternStates)
      fail("with so large a minLength or maxLength needs too many states");
    for (std::size_t i = 0; i <= last && !failure_; ++i) {
      out.is_final.push_back(i >= length.min);
      const std::int32_t after = i < last  ? static_cast<std::int32_t>(i + 1)
                                 : is_open ? static_cast<std::int32_t>(i)
                                           : kNone;
      out.next.insert(out.next.end(), num_classes(), after);
    }
    return out;
  }

  // Without what leads nowhere, and with ranges instead of classes.
  Result<PatternAutomaton> finished(const Dfa& dfa) const {
    const std::size_t classes = num_classes();
    std::vector<std::vector<std::uint32_t>> before(dfa.size());
    for (std::size_t i = 0; i < dfa.next.size(); ++i) {
      if (dfa.next[i] != kNone)
        before[static_cast<std::size_t>(dfa.next[i])].push_back(
            static_cast<std::uint32_t>(i / classes));
    }
    std::vector<std::int32_t> number(dfa.size(), kNone);
    std::vector<std::uint32_t> alive;
    for (std::uint32_t i = 0; i < dfa.size(); ++i) {
      if (!dfa.is_final[i]) continue;
      number[i] = 0;
      alive.push_back(i);
    }
    for (std::size_t i = 0; i < alive.size(); ++i) {
      for (const std::uint32_t state : before[alive[i]]) {
        if (std::exchange(number[state], 0) == kNone) alive.push_back(state);
      }
    }
    if (dfa.size() == 0 || number[0] == kNone)
      return Error{ErrorCode::InvalidArgument, "no text matches"};
    std::sort(alive.begin(), alive.end());
    for (std::size_t i = 0; i < alive.size(); ++i) number[alive[i]] = static_cast<std::int32_t>(i);
    PatternAutomaton out;
    for (const std::uint32_t state : alive) {
      PatternAutomaton::State& made = out.states.emplace_back();
      made.is_final = dfa.is_final[state];
      for (std::size_t c = 0; c < classes; ++c) {
        const std::int32_t next = dfa.next[state * classes + c];
        if (next == kNone || number[static_cast<std::size_t>(next)] == kNone) continue;
        const auto target = static_cast<std::uint32_t>(number[static_cast<std::size_t>(next)]);
        const CharRange chars = {begins_[c], begins_[c + 1] - 1};
        const bool goes_on = !made.steps.empty() && made.steps.back().target == target &&
                             made.steps.back().chars.high + 1 == chars.low;
        if (goes_on) {
          made.steps.back().chars.high = chars.high;
        } else {
          made.steps.push_back({chars, target});
        }
      }
    }
    return out;
  }

  const ParsedPattern pattern_;
  std::vector<std::uint32_t> begins_;  // of the classes, and one past the last
  std::size_t& spent_;
  std::optional<Error> failure_;
};

}  // namespace

Result<PatternAutomaton> compile_pattern(std::string_view pattern, PatternLength length,
                                         std::size_t& work) {
  Result<ParsedPattern> parsed = parse_pattern(pattern);
  if (!parsed.ok()) return parsed.error();
  return Compiler(parsed.take(), work).compile(length);
}

}  // namespace llorch::grammar
