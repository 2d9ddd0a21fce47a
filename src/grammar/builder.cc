#include "grammar/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/utf8.h"

namespace llorch::grammar {

Builder::Builder() {
  // One space, or a newline and an indent.
  space_rule_ = add_rule("");
  set_counts(space_rule_, {.max = kMaxIndent});
  const NodeId indent = add_node(space_rule_);
  const NodeId end = add_node(space_rule_);
  set_final(end);
  add_byte(start(space_rule_), ' ', end);
  add_byte(start(space_rule_), '\n', indent);
  add_byte(indent, ' ', indent, {.counts = true});
  add_byte(indent, '\t', indent, {.counts = true});
  add_epsilon(indent, end);
}

RuleId Builder::add_rule(std::string pointer) {
  const RuleId rule = static_cast<RuleId>(rules_.size());
  rules_.push_back({.pointer = std::move(pointer)});
  rules_[rule].start = add_node(rule);
  return rule;
}

void Builder::set_counts(RuleId rule, CountRange counts) {
  rules_[rule].min = counts.min;
  rules_[rule].max = counts.max;
}

NodeId Builder::add_node(RuleId rule) {
  if (nodes_.size() >= kMaxNodes) {
    is_full_ = true;
    return 0;
  }
  nodes_.push_back({.rule = rule});
  return static_cast<NodeId>(nodes_.size() - 1);
}

void Builder::set_final(NodeId node) {
  nodes_[node].is_final = true;
}

void Builder::add_edge(NodeId from, const Edge& edge) {
  if (edges_.size() >= 3 * kMaxNodes) is_full_ = true;
  if (!is_full_) edges_.push_back({from, edge});
}

void Builder::add_bytes(NodeId from, std::uint8_t low, std::uint8_t high, NodeId to,
                        ByteFlags flags) {
  add_edge(from, {.low = low,
                  .high = high,
                  .counts = flags.counts,
                  .needs_min = flags.needs_min,
                  .target = to});
}

void Builder::add_byte(NodeId from, char byte, NodeId to, ByteFlags flags) {
  add_bytes(from, static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte), to, flags);
}

void Builder::add_epsilon(NodeId from, NodeId to) {
  add_edge(from, {.kind = EdgeKind::Epsilon, .target = to});
}

void Builder::add_call(NodeId from, RuleId rule, NodeId to) {
  add_edge(from, {.kind = EdgeKind::Call, .rule = rule, .target = to});
}

void Builder::add_space(NodeId from, NodeId to) {
  add_epsilon(from, to);
  add_call(from, space_rule_, to);
}

void Builder::add_literals(NodeId from, std::vector<std::string> texts, NodeId to) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  const RuleId rule = nodes_[from].rule;
  std::vector<NodeId> path = {from};  // path[i]: before byte i of the previous text
  std::string_view previous;
  for (const std::string& text : texts) {
    CHECK(!text.empty());
    const auto differs = std::mismatch(text.begin(), text.end(), previous.begin(), previous.end());
    const std::size_t common = static_cast<std::size_t>(differs.first - text.begin());
    path.resize(std::min({path.size(), common + 1, text.size()}));
    while (path.size() < text.size() && !is_full_) {
      const NodeId next = add_node(rule);
      add_byte(path.back(), text[path.size() - 1], next);
      path.push_back(next);
    }
    if (is_full_) return;
    add_byte(path.back(), text.back(), to);
    previous = text;
  }
}

void Builder::add_literal(NodeId from, std::string_view text, NodeId to) {
  if (text.empty()) {
    add_epsilon(from, to);
  } else {
    add_literals(from, {std::string(text)}, to);
  }
}

Result<std::shared_ptr<const JsonGrammar>> Builder::finish(RuleId rule) {
  const RuleId root = add_rule("");
  const NodeId value = add_node(root);
  const NodeId end = add_node(root);
  set_final(end);
  add_space(start(root), value);
  add_call(value, rule, end);
  return finish_exact(root);
}

Result<std::shared_ptr<const JsonGrammar>> Builder::finish_exact(RuleId root) {
  if (is_full_) {
    return Error{
        ErrorCode::TooLarge,
        fmt::format("the schema needs more than {} states to enforce; use fewer or shorter "
                    "enum values and property names",
                    kMaxNodes)};
  }
  std::shared_ptr<JsonGrammar> grammar = assemble();
  grammar->root = root;
  if (const Status chains = check_chains(*grammar); !chains.ok()) return chains.error();
  measure_heights(*grammar);
  if (grammar->nodes[grammar->rules[root].start].height > kMaxFrames) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("no JSON text satisfies the schema: a required part of it is "
                             "impossible, contains itself, or nests deeper than {}",
                             kMaxNesting)};
  }
  return std::shared_ptr<const JsonGrammar>(std::move(grammar));
}

std::shared_ptr<JsonGrammar> Builder::assemble() {
  std::stable_sort(edges_.begin(), edges_.end(), [](const PendingEdge& a, const PendingEdge& b) {
    const bool a_moves = a.edge.kind != EdgeKind::Bytes;
    const bool b_moves = b.edge.kind != EdgeKind::Bytes;
    return std::pair(a.from, a_moves) < std::pair(b.from, b_moves);
  });
  auto grammar = std::make_shared<JsonGrammar>();
  grammar->edges.reserve(edges_.size());
  for (const PendingEdge& pending : edges_) {
    Node& node = nodes_[pending.from];
    if (node.num_bytes + node.num_moves == 0) {
      node.first_edge = static_cast<std::uint32_t>(grammar->edges.size());
    }
    ++(pending.edge.kind == EdgeKind::Bytes ? node.num_bytes : node.num_moves);
    grammar->edges.push_back(pending.edge);
  }
  for (Edge& edge : grammar->edges) {
    const Node& target = nodes_[edge.target];
    edge.is_tail =
        edge.kind == EdgeKind::Call && target.is_final && target.num_bytes + target.num_moves == 0;
  }
  grammar->nodes = std::move(nodes_);
  grammar->rules = std::move(rules_);
  return grammar;
}

namespace {

constexpr std::size_t kOpen = SIZE_MAX;  // of a chain's length: being measured

}  // namespace

// The nodes that one can get to from each without a byte: no cycle, no chain beyond kMaxChain.
Status Builder::check_chains(const JsonGrammar& grammar) {
  std::vector<std::size_t> length(grammar.nodes.size(), 0);  // 0: not seen; else longest chain
  struct Visit {
    NodeId node;
    std::uint32_t move;
    std::size_t longest;
  };
  std::vector<Visit> path;
  for (NodeId first = 0; first < grammar.nodes.size(); ++first) {
    if (length[first] == 0) {
      path.push_back({first, 0, 0});
      length[first] = kOpen;
    }
    while (!path.empty()) {
      Visit& visit = path.back();
      const Node& node = grammar.nodes[visit.node];
      if (visit.move == node.num_moves) {
        const std::size_t longest = visit.longest + 1;
        length[visit.node] = longest;
        path.pop_back();
        if (!path.empty()) path.back().longest = std::max(path.back().longest, longest);
        if (longest <= kMaxChain) continue;
        return Error{ErrorCode::TooLarge,
                     fmt::format("{}: alternatives within alternatives more than {} deep",
                                 base::quoted(grammar.rules[node.rule].pointer), kMaxChain)};
      }
      const Edge& edge = grammar.edges[node.first_edge + node.num_bytes + visit.move++];
      const NodeId next =
          edge.kind == EdgeKind::Call ? grammar.rules[edge.rule].start : edge.target;
      if (length[next] == kOpen) {
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("{}: the schema refers to itself with nothing in between",
                                 base::quoted(grammar.rules[grammar.nodes[next].rule].pointer))};
      }
      if (length[next] == 0) {
        length[next] = kOpen;
        path.push_back({next, 0, 0});
      } else {
        visit.longest = std::max(visit.longest, length[next]);
      }
    }
  }
  return ok_status();
}

namespace {

// Who gets to each node by an edge, or by calling the rule that starts there.
struct Predecessors {
  std::vector<std::uint32_t> first;  // of each node, into `edges`
  std::vector<std::uint32_t> edges;
};

Predecessors find_predecessors(const JsonGrammar& grammar) {
  Predecessors result;
  result.first.assign(grammar.nodes.size() + 1, 0);
  const auto for_each = [&](auto&& visit) {
    for (std::uint32_t i = 0; i < grammar.edges.size(); ++i) {
      const Edge& edge = grammar.edges[i];
      visit(edge.target, i);
      if (edge.kind == EdgeKind::Call) visit(grammar.rules[edge.rule].start, i);
    }
  };
  for_each([&](NodeId node, std::uint32_t) { ++result.first[node + 1]; });
  for (std::size_t i = 1; i < result.first.size(); ++i) result.first[i] += result.first[i - 1];
  std::vector<std::uint32_t> next(result.first.begin(), result.first.end() - 1);
  result.edges.resize(result.first.back());
  for_each([&](NodeId node, std::uint32_t edge) { result.edges[next[node]++] = edge; });
  return result;
}

}  // namespace

// The least height of every node, lowest first: once a node's is known, that of the nodes before it
// can only be as high or higher.
void Builder::measure_heights(JsonGrammar& grammar) {
  const Predecessors predecessors = find_predecessors(grammar);
  std::vector<NodeId> owner(grammar.edges.size());
  std::array<std::vector<NodeId>, kMaxFrames + 1> by_height;
  for (NodeId id = 0; id < grammar.nodes.size(); ++id) {
    const Node& node = grammar.nodes[id];
    if (node.is_final) by_height[0].push_back(id);
    for (std::uint32_t i = 0; i < node.num_bytes + node.num_moves; ++i) {
      owner[node.first_edge + i] = id;
    }
  }
  for (std::size_t height = 0; height < by_height.size(); ++height) {
    // The vector grows while it is read.
    for (std::size_t i = 0; i < by_height[height].size(); ++i) {
      const NodeId id = by_height[height][i];
      if (grammar.nodes[id].height != kUnreachable) continue;
      grammar.nodes[id].height = static_cast<std::uint8_t>(height);
      for (std::uint32_t p = predecessors.first[id]; p < predecessors.first[id + 1]; ++p) {
        const Edge& edge = grammar.edges[predecessors.edges[p]];
        std::size_t needed = grammar.nodes[edge.target].height;
        if (edge.kind == EdgeKind::Call) {
          const std::size_t callee = grammar.nodes[grammar.rules[edge.rule].start].height;
          needed = std::max(needed, callee + (edge.is_tail ? 0 : 1));
        }
        if (needed < by_height.size()) by_height[needed].push_back(owner[predecessors.edges[p]]);
      }
    }
  }
}

}  // namespace llorch::grammar
