// Puts a JsonGrammar together: nodes and edges, the parts every JSON text is made of, and the proof
// that what was built can always be finished. Private.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/automaton.h"

namespace llorch::grammar {

using NodeId = std::uint32_t;
using RuleId = std::uint32_t;

// How often; both ends included.
struct CountRange {
  std::uint32_t min = 0;
  std::uint32_t max = UINT32_MAX;
  bool operator<(const CountRange& other) const {
    return std::pair(min, max) < std::pair(other.min, other.max);
  }
};

// Beyond kMaxNodes nothing more is added and finish() returns TooLarge: callers need not check,
// only ask is_full() before long work.
class Builder {
 public:
  Builder();

  RuleId add_rule(std::string pointer);
  NodeId start(RuleId rule) const { return rules_[rule].start; }
  void set_counts(RuleId rule, CountRange counts);
  NodeId add_node(RuleId rule);
  void set_final(NodeId node);
  bool is_full() const { return is_full_; }

  struct ByteFlags {
    bool counts = false;
    bool needs_min = false;
  };
  void add_bytes(NodeId from, std::uint8_t low, std::uint8_t high, NodeId to, ByteFlags flags);
  void add_byte(NodeId from, char byte, NodeId to) { add_byte(from, byte, to, {}); }
  void add_byte(NodeId from, char byte, NodeId to, ByteFlags flags);
  void add_epsilon(NodeId from, NodeId to);
  void add_call(NodeId from, RuleId rule, NodeId to);
  void add_space(NodeId from, NodeId to);  // optional whitespace
  // One of the texts; a trie, so that many cost little.
  void add_literals(NodeId from, std::vector<std::string> texts, NodeId to);
  void add_literal(NodeId from, std::string_view text, NodeId to);  // also an empty one

  // Rules that are made once, on first use.
  RuleId string_rule(CountRange length);
  // A string in which the expression finds a match.
  Result<RuleId> pattern_rule(std::string_view pattern, CountRange length);
  RuleId integer_rule();
  RuleId number_rule();
  RuleId any_value_rule();
  RuleId any_object_rule();
  RuleId any_array_rule();
  // A string that is none of `names`, however written.
  RuleId other_key_rule(const std::vector<std::string>& names);

  // `[`, the items, `]`: first `prefix` in order, then any number of `rest` (none without).
  void add_array(NodeId from, const std::vector<RuleId>& prefix, std::optional<RuleId> rest,
                 CountRange count, NodeId to);
  struct Property {
    std::string name;
    RuleId value = 0;
    bool is_required = false;
  };
  // `{`, the properties in order, then any number of others (none without), `}`.
  void add_object(NodeId from, const std::vector<Property>& properties,
                  std::optional<RuleId> others, NodeId to);

  // A document that is what `rule` matches, maybe after whitespace.
  Result<std::shared_ptr<const JsonGrammar>> finish(RuleId rule);
  // The same without the whitespace.
  Result<std::shared_ptr<const JsonGrammar>> finish_exact(RuleId root);

 private:
  struct PendingEdge {
    NodeId from = 0;
    Edge edge;
  };
  struct NameTrie;

  void add_edge(NodeId from, const Edge& edge);
  void add_string_body(RuleId rule, NodeId body, NodeId end);
  void add_escapes(RuleId rule, NodeId body);
  void add_digits(RuleId rule, NodeId from, std::size_t max, NodeId end);
  void add_number(RuleId rule, NodeId from, NodeId end, bool is_integer);
  void add_other_keys(NodeId node, NodeId shadow, const NameTrie& names,
                      const std::vector<PendingEdge>& body_edges);

  // The rule, made and filled from its first node to its last where it is not there yet. It is
  // there when it is filled: it may call itself.
  RuleId make_once(std::optional<RuleId>& rule,
                   const std::function<void(NodeId from, NodeId end)>& fill);

  std::shared_ptr<JsonGrammar> assemble();
  static void measure_heights(JsonGrammar& grammar);
  static Status check_chains(const JsonGrammar& grammar);

  std::vector<Node> nodes_;
  std::vector<PendingEdge> edges_;
  std::vector<Rule> rules_;
  bool is_full_ = false;
  RuleId space_rule_ = 0;
  std::map<CountRange, RuleId> string_rules_;
  std::map<std::pair<std::string, CountRange>, RuleId> pattern_rules_;
  std::size_t pattern_work_ = 0;
  std::optional<RuleId> integer_rule_;
  std::optional<RuleId> number_rule_;
  std::optional<RuleId> any_value_rule_;
  std::optional<RuleId> any_object_rule_;
  std::optional<RuleId> any_array_rule_;
};

// The rule of a schema and of all that it refers to (schema_compiler.cc). The errors carry a JSON
// pointer.
Result<RuleId> compile_schema(Builder& builder, const json::Value& schema);

// A value as JSON writes it, without whitespace, in bytes that every vocabulary has.
std::string json_literal(const json::Value& value);

}  // namespace llorch::grammar
