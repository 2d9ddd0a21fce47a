// The compiled grammar and its one step: a recursive transition network over bytes. Rules are
// graphs of nodes; an edge consumes a byte, nothing, or what another rule matches. Private.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/json_grammar.h"

namespace llorch::grammar {

inline constexpr std::uint8_t kUnreachable = 255;  // as a height: no way to the end of the rule
inline constexpr std::int32_t kMaxFrames = static_cast<std::int32_t>(kMaxNesting) - 1;
// Moves without a byte, one after the other. The builder rejects longer chains, so that a step
// which stops after kMaxSettled moves has found a reading by then.
inline constexpr std::size_t kMaxChain = 256;
inline constexpr std::size_t kMaxSettled = 1024;

enum class EdgeKind : std::uint8_t { Bytes, Epsilon, Call };

struct Edge {
  EdgeKind kind = EdgeKind::Bytes;
  std::uint8_t low = 0;    // Bytes
  std::uint8_t high = 0;   // Bytes, inclusive
  bool counts = false;     // Bytes: only below the rule's maximum, and counts
  bool needs_min = false;  // only from the rule's minimum on; not with Call
  bool is_tail = false;    // Call: nothing follows, so nobody waits
  std::uint32_t rule = 0;  // Call
  std::uint32_t target = 0;
};

struct Node {
  std::uint32_t first_edge = 0;  // those that consume a byte, then the others
  std::uint32_t num_bytes = 0;
  std::uint32_t num_moves = 0;
  std::uint32_t rule = 0;
  // The least number of frames that must be free above the current one to reach the end of the
  // rule. A step never enters a node that asks for more than is left: no dead ends.
  std::uint8_t height = kUnreachable;
  bool is_final = false;
  bool is_body = false;  // between two characters of a string that takes any
};

struct Rule {
  std::uint32_t start = 0;
  std::uint32_t min = 0;
  std::uint32_t max = UINT32_MAX;
  std::string pointer;  // the schema it was made from, for messages
};

class JsonGrammar {
 public:
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  std::vector<Rule> rules;
  std::uint32_t root = 0;  // a rule
};

// Sets of readings, one after the other, over one arena of frames. Going back is truncation.
class Readings {
 public:
  // A set: a range of all(), and whether a document ends there.
  struct Set {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool is_complete = false;
    bool is_empty() const { return begin == end && !is_complete; }
  };

  // `grammar` outlives this.
  explicit Readings(const JsonGrammar& grammar) : grammar_(&grammar) {}

  Set start();
  Set load(const std::vector<Reading>& readings, const std::vector<Frame>& frames);
  // The readings that `from` becomes by a byte, put behind everything else.
  Set step(Set from, std::uint8_t byte);

  // One of them is between two characters of a string without a maximum.
  bool takes_any_characters(Set set) const;

  std::size_t num_frames() const { return frames_.size(); }
  // Forgets all readings from `set.end` on and all frames from num_frames on.
  void truncate(Set set, std::size_t num_frames);
  // The set alone, with the frames it needs.
  void save(Set set, std::vector<Reading>& readings, std::vector<Frame>& frames) const;

 private:
  bool is_full() const { return all_.size() - step_begin_ >= kMaxReadings; }
  bool fits(std::int32_t depth, std::uint32_t node) const;
  std::int32_t depth_of(std::int32_t stack) const;
  std::int32_t push_frame(const Frame& frame);
  void add(const Reading& reading);
  void settle(const Reading& reading);
  void settle_moves(const Reading& reading, const Node& node);

  const JsonGrammar* grammar_;
  std::vector<Reading> all_;
  std::vector<Frame> frames_;
  // Of the step under way.
  std::vector<Reading> pending_;
  std::vector<Reading> seen_;
  std::size_t step_begin_ = 0;
  std::size_t step_frames_ = 0;
  bool step_completes_ = false;
};

}  // namespace llorch::grammar
