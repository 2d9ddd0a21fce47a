#include "tokenizer/pretokenize.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "tokenizer/gguf_pre.h"
#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

using RangeSink = std::function<void(std::size_t, std::size_t)>;

// Turns matches, given from left to right, into words as the behavior has it.
class MatchSplitter {
 public:
  MatchSplitter(const SplitRule& rule, std::string_view text, const RangeSink& emit)
      : behavior_(rule.behavior), inverted_(rule.inverted), size_(text.size()), emit_(emit) {}

  void match(std::size_t begin, std::size_t end) {
    if (begin > done_) add(done_, begin, inverted_);
    add(begin, end, !inverted_);
    done_ = end;
  }

  void finish() {
    if (done_ < size_) add(done_, size_, inverted_);
    flush();
  }

 private:
  void add(std::size_t begin, std::size_t end, bool is_match) {
    switch (behavior_) {
      case SplitBehavior::Removed:
        if (!is_match && end > begin) emit_(begin, end);
        return;
      case SplitBehavior::Isolated:
        if (end > begin) emit_(begin, end);
        return;
      case SplitBehavior::MergedWithPrevious:
        hold(begin, end, is_match && !held_is_match_);
        break;
      case SplitBehavior::MergedWithNext:
        hold(begin, end, !is_match && held_is_match_);
        break;
      case SplitBehavior::Contiguous:
        hold(begin, end, is_match == held_is_match_);
        break;
    }
    held_is_match_ = is_match;
  }

  // Joins the range to what is held, or holds it instead.
  void hold(std::size_t begin, std::size_t end, bool joins) {
    if (!joins || held_end_ == held_begin_) {
      flush();
      held_begin_ = begin;
    }
    held_end_ = end;
  }

  void flush() {
    if (held_end_ > held_begin_) emit_(held_begin_, held_end_);
    held_begin_ = held_end_;
  }

  const SplitBehavior behavior_;
  const bool inverted_;
  const std::size_t size_;
  const RangeSink& emit_;
  std::size_t done_ = 0;
  std::size_t held_begin_ = 0, held_end_ = 0;
  bool held_is_match_ = false;
};

bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}

// Every character of the class is a match of its own.
void match_characters(const SplitRule& rule, std::string_view text, MatchSplitter& splitter) {
  const UnicodeTable& table = UnicodeTable::instance();
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    bool matches = false;
    if (rule.kind == SplitRule::Kind::Digits) {
      matches = table.is_number(c.code_point);
    } else if (rule.kind == SplitRule::Kind::Whitespace) {
      matches = table.is_space(c.code_point);
    } else {
      const Category category = table.old_category(c.code_point);
      matches = is_ascii_punctuation(c.code_point) ||
                (category >= Category::Pc && category <= Category::Ps);
    }
    if (matches) splitter.match(i, i + c.bytes);
    i += c.bytes;
  }
}

}  // namespace

Result<SplitRule> make_regex_rule(std::string_view expression, SplitBehavior behavior,
                                  bool inverted) {
  const std::vector<std::string_view> published = published_expressions();
  const bool is_linear = std::ranges::find(published, expression) != published.end();
  Result<Regex> regex =
      Regex::compile(expression, is_linear ? Regex::Effort::Linear : Regex::Effort::Unknown);
  if (!regex.ok()) return regex.error();
  SplitRule rule;
  rule.kind = SplitRule::Kind::Expression;
  rule.behavior = behavior;
  rule.inverted = inverted;
  rule.regex = regex.take();
  return rule;
}

Result<SplitRule> make_expression_rule(std::string_view expression, SplitBehavior behavior,
                                       bool inverted) {
  // These match every character of any text, so that isolating matches and removing the rest are
  // the same.
  const bool keeps_matches =
      (behavior == SplitBehavior::Isolated) || (behavior == SplitBehavior::Removed && inverted);
  SplitRule rule;
  if (keeps_matches && expression == kGpt2Expression) return rule;
  rule.kind = SplitRule::Kind::Tiktoken;
  if (keeps_matches && expression == kLlama3Expression) return rule;
  rule.max_digits = 1;
  if (keeps_matches && expression == kQwen2Expression) return rule;
  return make_regex_rule(expression, behavior, inverted);
}

// One text on its way through the rules.
class PreTokenizer::Splitter {
 public:
  Splitter(const std::vector<SplitRule>& rules, EncodeBudget& budget, WordSink& sink)
      : rules_(rules), budget_(budget), sink_(sink) {}

  Status apply(std::size_t index, std::string_view text, bool is_first);

 private:
  Status apply_by_hand(std::size_t index, std::string_view text, bool is_first);
  Status apply_expression(std::size_t index, std::string_view text, bool is_first);
  Status apply_metaspace(std::size_t index, std::string_view text, bool is_first);

  const std::vector<SplitRule>& rules_;
  EncodeBudget& budget_;
  WordSink& sink_;
};

Status PreTokenizer::split(std::string_view text, bool is_first, EncodeBudget& budget,
                           WordSink& sink) const {
  return Splitter(rules_, budget, sink).apply(0, text, is_first);
}

Status PreTokenizer::Splitter::apply(std::size_t index, std::string_view text, bool is_first) {
  if (text.empty()) return ok_status();
  if (!budget_.spend(1 + text.size())) return budget_.status();
  if (index == rules_.size()) {
    sink_.word(text);
    return ok_status();
  }
  switch (rules_[index].kind) {
    case SplitRule::Kind::Gpt2:
    case SplitRule::Kind::Tiktoken:
      return apply_by_hand(index, text, is_first);
    case SplitRule::Kind::PrefixSpace: {
      if (text[0] == ' ') return apply(index + 1, text, is_first);
      std::string prefixed = " ";
      prefixed += text;
      return apply(index + 1, prefixed, is_first);
    }
    case SplitRule::Kind::Metaspace:
      return apply_metaspace(index, text, is_first);
    default:
      return apply_expression(index, text, is_first);
  }
}

Status PreTokenizer::Splitter::apply_by_hand(std::size_t index, std::string_view text,
                                             bool is_first) {
  const SplitRule& rule = rules_[index];
  const bool is_last = index + 1 == rules_.size();
  for (std::size_t begin = 0; begin < text.size() && !budget_.is_spent();) {
    const std::size_t end = rule.kind == SplitRule::Kind::Gpt2
                                ? next_gpt2_word(text, begin)
                                : next_tiktoken_word(text, begin, rule.max_digits);
    const std::string_view word = text.substr(begin, end - begin);
    if (is_last) {
      sink_.word(word);
    } else if (Status status = apply(index + 1, word, is_first && begin == 0); !status.ok()) {
      return status;
    }
    begin = end;
  }
  return ok_status();
}

Status PreTokenizer::Splitter::apply_expression(std::size_t index, std::string_view text,
                                                bool is_first) {
  const SplitRule& rule = rules_[index];
  Status failure = ok_status();
  const RangeSink emit = [&](std::size_t begin, std::size_t end) {
    if (!failure.ok()) return;
    failure = apply(index + 1, text.substr(begin, end - begin), is_first && begin == 0);
  };
  MatchSplitter splitter(rule, text, emit);
  if (rule.kind == SplitRule::Kind::Expression) {
    Status matched = rule.regex->for_each_match(
        text, budget_, [&](std::size_t begin, std::size_t end) { splitter.match(begin, end); });
    if (!matched.ok()) return matched;
  } else {
    match_characters(rule, text, splitter);
  }
  splitter.finish();
  return failure;
}

Status PreTokenizer::Splitter::apply_metaspace(std::size_t index, std::string_view text,
                                               bool is_first) {
  const SplitRule& rule = rules_[index];
  std::string marked;
  marked.reserve(text.size() + text.size() / 2);
  const bool starts_marked = text[0] == ' ' || text.starts_with(rule.replacement);
  if (!starts_marked && (rule.prepend == PrependScheme::Always ||
                         (rule.prepend == PrependScheme::First && is_first))) {
    marked += rule.replacement;
  }
  for (const char c : text) {
    if (c == ' ') {
      marked += rule.replacement;
    } else {
      marked += c;
    }
  }
  if (!rule.splits) return apply(index + 1, marked, is_first);
  const std::string_view view = marked;
  for (std::size_t begin = 0; begin < view.size();) {
    const std::size_t end = std::min(view.find(rule.replacement, begin + 1), view.size());
    Status status = apply(index + 1, view.substr(begin, end - begin), is_first && begin == 0);
    if (!status.ok()) return status;
    begin = end;
  }
  return ok_status();
}

}  // namespace llorch::tokenizer
