// The parts of JSON texts, as nodes and edges: strings, numbers, arrays, objects.
#include <algorithm>
#include <memory>

#include "base/json.h"
#include "grammar/builder.h"

namespace llorch::grammar {

namespace {

// Numbers are bounded so that every reader holds them: an int64, or a double far from overflow.
constexpr std::size_t kMaxDigits = 18;
constexpr std::size_t kMaxExponentDigits = 2;
constexpr std::string_view kHex = "0123456789abcdef";

void add_hex(Builder& builder, NodeId from, NodeId to) {
  builder.add_bytes(from, '0', '9', to, {});
  builder.add_bytes(from, 'a', 'f', to, {});
  builder.add_bytes(from, 'A', 'F', to, {});
}

}  // namespace

// Escapes: the short ones, \uXXXX outside the surrogates, and pairs of surrogates. A pair is one
// character, and the backslash counts it.
void Builder::add_escapes(RuleId rule, NodeId body) {
  const NodeId escape = add_node(rule);
  add_byte(body, '\\', escape, {.counts = true});
  for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) add_byte(escape, c, body);
  const NodeId hex1 = add_node(rule);
  const NodeId hex2 = add_node(rule);
  const NodeId hex3 = add_node(rule);
  const NodeId hex4 = add_node(rule);
  add_byte(escape, 'u', hex1);
  add_bytes(hex1, '0', '9', hex2, {});
  for (const char c : {'a', 'A', 'e', 'E'}) {
    const auto low = static_cast<std::uint8_t>(c);
    add_bytes(hex1, low, static_cast<std::uint8_t>(low + (low % 32 == 1 ? 2 : 1)), hex2, {});
  }
  add_hex(*this, hex2, hex3);
  add_hex(*this, hex3, hex4);
  add_hex(*this, hex4, body);

  const NodeId after_d = add_node(rule);
  add_byte(hex1, 'd', after_d);
  add_byte(hex1, 'D', after_d);
  add_bytes(after_d, '0', '7', hex3, {});
  const NodeId high3 = add_node(rule);
  add_bytes(after_d, '8', '9', high3, {});
  add_bytes(after_d, 'a', 'b', high3, {});
  add_bytes(after_d, 'A', 'B', high3, {});
  const NodeId high4 = add_node(rule);
  const NodeId backslash = add_node(rule);
  const NodeId u = add_node(rule);
  const NodeId low1 = add_node(rule);
  const NodeId low2 = add_node(rule);
  add_hex(*this, high3, high4);
  add_hex(*this, high4, backslash);
  add_byte(backslash, '\\', u);
  add_byte(u, 'u', low1);
  add_byte(low1, 'd', low2);
  add_byte(low1, 'D', low2);
  add_bytes(low2, 'c', 'f', hex3, {});
  add_bytes(low2, 'C', 'F', hex3, {});
}

// Characters up to the closing quote: UTF-8 as Unicode defines it (no overlong forms, surrogates or
// values beyond U+10FFFF). The first byte of a character counts it.
void Builder::add_string_body(RuleId rule, NodeId body, NodeId end) {
  nodes_[body].is_body = true;
  add_bytes(body, 0x23, 0x5B, body, {.counts = true});
  add_bytes(body, 0x5D, 0x7F, body, {.counts = true});
  add_bytes(body, 0x20, 0x21, body, {.counts = true});
  add_byte(body, '"', end, {.needs_min = true});
  const NodeId left1 = add_node(rule);
  const NodeId left2 = add_node(rule);
  const NodeId left3 = add_node(rule);
  add_bytes(left1, 0x80, 0xBF, body, {});
  add_bytes(left2, 0x80, 0xBF, left1, {});
  add_bytes(left3, 0x80, 0xBF, left2, {});
  add_bytes(body, 0xC2, 0xDF, left1, {.counts = true});
  add_bytes(body, 0xE1, 0xEC, left2, {.counts = true});
  add_bytes(body, 0xEE, 0xEF, left2, {.counts = true});
  add_bytes(body, 0xF1, 0xF3, left3, {.counts = true});
  const auto add_special = [&](std::uint8_t lead, std::uint8_t low, std::uint8_t high,
                               NodeId next) {
    const NodeId second = add_node(rule);
    add_bytes(body, lead, lead, second, {.counts = true});
    add_bytes(second, low, high, next, {});
  };
  add_special(0xE0, 0xA0, 0xBF, left1);
  add_special(0xED, 0x80, 0x9F, left1);
  add_special(0xF0, 0x90, 0xBF, left2);
  add_special(0xF4, 0x80, 0x8F, left2);
  add_escapes(rule, body);
}

RuleId Builder::string_rule(CountRange length) {
  if (const auto found = string_rules_.find(length); found != string_rules_.end()) {
    return found->second;
  }
  const RuleId rule = add_rule("");
  string_rules_[length] = rule;
  set_counts(rule, length);
  const NodeId body = add_node(rule);
  const NodeId end = add_node(rule);
  set_final(end);
  add_byte(start(rule), '"', body);
  add_string_body(rule, body, end);
  return rule;
}

// At least one digit and at most `max`.
void Builder::add_digits(RuleId rule, NodeId from, std::size_t max, NodeId end) {
  for (std::size_t i = 0; i < max; ++i) {
    const NodeId next = add_node(rule);
    add_bytes(from, '0', '9', next, {});
    add_epsilon(next, end);
    from = next;
  }
}

void Builder::add_number(RuleId rule, NodeId from, NodeId end, bool is_integer) {
  const NodeId unsigned_part = add_node(rule);
  const NodeId whole = add_node(rule);
  add_byte(from, '-', unsigned_part);
  add_epsilon(from, unsigned_part);
  add_byte(unsigned_part, '0', whole);
  const NodeId first = add_node(rule);
  add_bytes(unsigned_part, '1', '9', first, {});
  add_epsilon(first, whole);
  add_digits(rule, first, kMaxDigits - 1, whole);
  add_epsilon(whole, end);
  if (is_integer) return;
  const NodeId point = add_node(rule);
  const NodeId fraction = add_node(rule);
  add_byte(whole, '.', point);
  add_digits(rule, point, kMaxDigits, fraction);
  add_epsilon(fraction, end);
  const NodeId exponent = add_node(rule);
  const NodeId exponent_digits = add_node(rule);
  for (const NodeId before : {whole, fraction}) {
    add_byte(before, 'e', exponent);
    add_byte(before, 'E', exponent);
  }
  add_byte(exponent, '+', exponent_digits);
  add_byte(exponent, '-', exponent_digits);
  add_epsilon(exponent, exponent_digits);
  add_digits(rule, exponent_digits, kMaxExponentDigits, end);
}

RuleId Builder::make_once(std::optional<RuleId>& rule,
                          const std::function<void(NodeId from, NodeId end)>& fill) {
  if (!rule) {
    rule = add_rule("");
    const NodeId end = add_node(*rule);
    set_final(end);
    fill(start(*rule), end);
  }
  return *rule;
}

RuleId Builder::integer_rule() {
  return make_once(integer_rule_, [this](NodeId from, NodeId end) {
    add_number(*integer_rule_, from, end, true);
  });
}

RuleId Builder::number_rule() {
  return make_once(number_rule_, [this](NodeId from, NodeId end) {
    add_number(*number_rule_, from, end, false);
  });
}

RuleId Builder::any_value_rule() {
  return make_once(any_value_rule_, [this](NodeId from, NodeId end) {
    add_literals(from, {"null", "true", "false"}, end);
    const RuleId rules[] = {string_rule({}), number_rule(), any_array_rule(), any_object_rule()};
    for (const RuleId rule : rules) add_call(from, rule, end);
  });
}

RuleId Builder::any_object_rule() {
  return make_once(any_object_rule_, [this](NodeId from, NodeId end) {
    add_object(from, {}, any_value_rule(), end);
  });
}

RuleId Builder::any_array_rule() {
  return make_once(any_array_rule_, [this](NodeId from, NodeId end) {
    add_array(from, {}, any_value_rule(), {}, end);
  });
}

struct Builder::NameTrie {
  std::map<std::uint8_t, std::unique_ptr<NameTrie>> next;
  bool is_name = false;

  // Up to the first byte that a string cannot hold as it is.
  void insert(std::string_view name) {
    NameTrie* node = this;
    for (const char c : name) {
      const auto byte = static_cast<std::uint8_t>(c);
      if (byte < 0x20 || c == '"' || c == '\\') return;
      std::unique_ptr<NameTrie>& child = node->next[byte];
      if (child == nullptr) child = std::make_unique<NameTrie>();
      node = child.get();
    }
    node->is_name = true;
  }
};

// A string's automaton (its node here is `shadow`) side by side with the names: as long as the text
// is the start of a name, no escape is allowed, and no quote where it is a whole name. Once it
// differs it is just a string. Recursion ends at the length of a name.
void Builder::add_other_keys(NodeId node, NodeId shadow, const NameTrie& names,
                             const std::vector<PendingEdge>& body_edges) {
  if (is_full_) return;
  for (const auto& [from, edge] : body_edges) {
    if (from != shadow || edge.low == '\\' || (edge.low == '"' && names.is_name)) continue;
    unsigned low = edge.low;
    for (const auto& [byte, child] : names.next) {
      if (byte < edge.low || byte > edge.high) continue;
      if (low < byte) {
        add_bytes(node, static_cast<std::uint8_t>(low), static_cast<std::uint8_t>(byte - 1),
                  edge.target, {});
      }
      low = byte + 1U;
      const NodeId next = add_node(nodes_[node].rule);
      add_bytes(node, byte, byte, next, {});
      add_other_keys(next, edge.target, *child, body_edges);
    }
    if (low <= edge.high) {
      add_bytes(node, static_cast<std::uint8_t>(low), edge.high, edge.target, {});
    }
  }
}

RuleId Builder::other_key_rule(const std::vector<std::string>& names) {
  if (names.empty()) return string_rule({});
  const RuleId rule = add_rule("");
  const NodeId body = add_node(rule);
  const NodeId end = add_node(rule);
  set_final(end);
  const auto before = static_cast<std::ptrdiff_t>(edges_.size());
  add_string_body(rule, body, end);
  const std::vector<PendingEdge> body_edges(edges_.begin() + before, edges_.end());
  const NodeId first = add_node(rule);
  add_byte(start(rule), '"', first);
  NameTrie trie;
  for (const std::string& name : names) trie.insert(name);
  add_other_keys(first, body, trie, body_edges);
  return rule;
}

void Builder::add_array(NodeId from, const std::vector<RuleId>& prefix, std::optional<RuleId> rest,
                        CountRange count, NodeId to) {
  const RuleId rule = nodes_[from].rule;
  const NodeId open = add_node(rule);
  NodeId item = add_node(rule);  // before an item
  add_byte(from, '[', open);
  add_space(open, item);
  if (count.min == 0) add_byte(item, ']', to);
  std::size_t index = 0;
  for (; index < prefix.size() && index < count.max; ++index) {
    const NodeId after = add_node(rule);
    add_call(item, prefix[index], after);
    if (index + 1 >= count.min) {
      const NodeId close = add_node(rule);
      add_space(after, close);
      add_byte(close, ']', to);
    }
    const NodeId comma = add_node(rule);
    item = add_node(rule);
    add_byte(after, ',', comma);
    add_space(comma, item);
  }
  if (!rest || index >= count.max) return;
  // The commas that follow are counted: one less than the items.
  const auto used = static_cast<std::uint32_t>(index) + 1;
  set_counts(rule, {.min = count.min > used ? count.min - used : 0,
                    .max = count.max == UINT32_MAX ? UINT32_MAX : count.max - used});
  const NodeId after = add_node(rule);
  const NodeId comma = add_node(rule);
  const NodeId close = add_node(rule);
  const NodeId next = add_node(rule);  // unlike the first place it needs an item
  const NodeId ending = add_node(rule);
  add_call(item, *rest, after);
  add_byte(after, ',', comma, {.counts = true});
  add_space(comma, next);
  add_call(next, *rest, after);
  // The whitespace before the bracket needs the minimum too: nothing else can follow it.
  add_edge(after, {.kind = EdgeKind::Epsilon, .needs_min = true, .target = ending});
  add_space(ending, close);
  add_byte(close, ']', to);
}

void Builder::add_object(NodeId from, const std::vector<Property>& properties,
                         std::optional<RuleId> others, NodeId to) {
  const RuleId rule = nodes_[from].rule;
  const NodeId close = add_node(rule);
  const NodeId close_spaced = add_node(rule);
  add_byte(close, '}', to);
  add_space(close_spaced, close);
  // keys[i]: the next key is that of property i or of a later one. afters[i]: a member was written
  // and those that remain begin at i.
  std::vector<NodeId> keys;
  std::vector<NodeId> afters;
  for (std::size_t i = 0; i <= properties.size() && !is_full_; ++i) {
    keys.push_back(add_node(rule));
    afters.push_back(add_node(rule));
  }
  if (is_full_) return;
  std::size_t first_optional = properties.size();  // from here on nothing is required
  while (first_optional > 0 && !properties[first_optional - 1].is_required) --first_optional;
  const NodeId open = add_node(rule);
  const NodeId inside = add_node(rule);
  add_byte(from, '{', open);
  add_space(open, inside);
  if (first_optional == 0) add_byte(inside, '}', to);
  add_epsilon(inside, keys[0]);
  const auto add_value = [&](NodeId key_end, RuleId value, NodeId after) {
    const NodeId colon = add_node(rule);
    const NodeId before = add_node(rule);
    add_byte(key_end, ':', colon);
    add_space(colon, before);
    add_call(before, value, after);
  };
  for (std::size_t i = 0; i <= properties.size(); ++i) {
    if (i >= first_optional) add_epsilon(afters[i], close_spaced);
    const NodeId comma = add_node(rule);
    add_byte(afters[i], ',', comma);
    add_space(comma, keys[i]);
    if (i == properties.size()) break;
    const NodeId key_end = add_node(rule);
    add_literals(keys[i], {json_literal(json::Value(boost::json::string(properties[i].name)))},
                 key_end);
    add_value(key_end, properties[i].value, afters[i + 1]);
    if (!properties[i].is_required) add_epsilon(keys[i], keys[i + 1]);
  }
  if (!others) return;
  std::vector<std::string> names;
  names.reserve(properties.size());
  for (const Property& property : properties) names.push_back(property.name);
  const NodeId key_end = add_node(rule);
  add_call(keys.back(), other_key_rule(names), key_end);
  add_value(key_end, *others, afters.back());
}

std::string json_literal(const json::Value& value) {
  const std::string written = json::serialize(value);
  // Only strings have such bytes. Vocabularies may lack DEL and the first bytes of characters from
  // U+40000 on.
  std::string literal;
  const auto add_unit = [&](std::uint32_t unit) {
    literal += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) literal += kHex[(unit >> shift) & 15U];
  };
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(written[i]);
    if (byte == 0x7F) {
      add_unit(byte);
    } else if (byte >= 0xF1 && i + 3 < written.size()) {
      std::uint32_t scalar = byte & 7U;
      for (std::size_t k = 1; k < 4; ++k) {
        scalar = (scalar << 6) | (static_cast<std::uint8_t>(written[i + k]) & 63U);
      }
      add_unit(0xD800 + ((scalar - 0x10000) >> 10));
      add_unit(0xDC00 + ((scalar - 0x10000) & 0x3FF));
      i += 3;
    } else {
      literal += written[i];
    }
  }
  return literal;
}

}  // namespace llorch::grammar
