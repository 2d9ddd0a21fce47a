#include "grammar/automaton.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace llorch::grammar {

std::int32_t Readings::depth_of(std::int32_t stack) const {
  return stack < 0 ? 0 : frames_[static_cast<std::size_t>(stack)].depth;
}

bool Readings::fits(std::int32_t depth, std::uint32_t node) const {
  return depth + grammar_->nodes[node].height <= kMaxFrames;
}

std::int32_t Readings::push_frame(const Frame& frame) {
  const auto begin = frames_.begin() + static_cast<std::ptrdiff_t>(step_frames_);
  const auto found = std::find(begin, frames_.end(), frame);
  if (found != frames_.end()) return static_cast<std::int32_t>(found - frames_.begin());
  frames_.push_back(frame);
  return static_cast<std::int32_t>(frames_.size() - 1);
}

void Readings::add(const Reading& reading) {
  if (is_full()) return;
  const auto begin = all_.begin() + static_cast<std::ptrdiff_t>(step_begin_);
  if (std::find(begin, all_.end(), reading) == all_.end()) all_.push_back(reading);
}

// Follows the moves that consume nothing, depth first, so that the first way found is kept
// whatever is forgotten later.
void Readings::settle(const Reading& reading) {
  const Node& first = grammar_->nodes[reading.node];
  if (first.num_moves == 0 && !first.is_final) {
    add(reading);
    return;
  }
  pending_.assign(1, reading);
  while (!pending_.empty() && seen_.size() < kMaxSettled && !is_full()) {
    const Reading current = pending_.back();
    pending_.pop_back();
    if (std::find(seen_.begin(), seen_.end(), current) != seen_.end()) continue;
    seen_.push_back(current);
    const Node& node = grammar_->nodes[current.node];
    if (node.num_bytes > 0) add(current);
    settle_moves(current, node);
    if (!node.is_final) continue;
    if (current.stack < 0) {
      step_completes_ = true;
    } else {
      const Frame& frame = frames_[static_cast<std::size_t>(current.stack)];
      pending_.push_back({frame.node, frame.count, frame.parent});
    }
  }
}

void Readings::settle_moves(const Reading& reading, const Node& node) {
  const std::int32_t depth = depth_of(reading.stack);
  const std::uint32_t moves = node.first_edge + node.num_bytes;
  for (std::uint32_t i = node.num_moves; i-- > 0;) {
    const Edge& edge = grammar_->edges[moves + i];
    if (!fits(depth, edge.target)) continue;
    if (edge.kind == EdgeKind::Epsilon) {
      if (edge.needs_min && reading.count < grammar_->rules[node.rule].min) continue;
      pending_.push_back({edge.target, reading.count, reading.stack});
      continue;
    }
    const std::uint32_t start = grammar_->rules[edge.rule].start;
    if (edge.is_tail) {
      if (fits(depth, start)) pending_.push_back({start, 0, reading.stack});
    } else if (fits(depth + 1, start)) {
      const Frame frame = {edge.target, reading.count, reading.stack, depth + 1};
      pending_.push_back({start, 0, push_frame(frame)});
    }
  }
}

Readings::Set Readings::start() {
  all_.clear();
  frames_.clear();
  seen_.clear();
  step_begin_ = 0;
  step_frames_ = 0;
  step_completes_ = false;
  settle({grammar_->rules[grammar_->root].start, 0, -1});
  return {0, all_.size(), step_completes_};
}

Readings::Set Readings::load(const std::vector<Reading>& readings,
                             const std::vector<Frame>& frames) {
  all_ = readings;
  frames_ = frames;
  return {0, all_.size(), false};
}

Readings::Set Readings::step(Set from, std::uint8_t byte) {
  step_begin_ = all_.size();
  step_frames_ = frames_.size();
  step_completes_ = false;
  seen_.clear();
  for (std::size_t i = from.begin; i < from.end && !is_full(); ++i) {
    const Reading reading = all_[i];
    const Node& node = grammar_->nodes[reading.node];
    const std::span<const Edge> edges(grammar_->edges.data() + node.first_edge, node.num_bytes);
    for (const Edge& edge : edges) {
      if (byte < edge.low || byte > edge.high) continue;
      const Rule& rule = grammar_->rules[node.rule];
      if (edge.counts && reading.count >= rule.max) continue;
      if (edge.needs_min && reading.count < rule.min) continue;
      if (!fits(depth_of(reading.stack), edge.target)) continue;
      settle({edge.target, reading.count + (edge.counts ? 1U : 0U), reading.stack});
    }
  }
  return {step_begin_, all_.size(), step_completes_};
}

bool Readings::takes_any_characters(Set set) const {
  const std::span<const Reading> readings(all_.data() + set.begin, set.end - set.begin);
  return std::any_of(readings.begin(), readings.end(), [&](const Reading& reading) {
    const Node& node = grammar_->nodes[reading.node];
    return node.is_body && grammar_->rules[node.rule].max == UINT32_MAX;
  });
}

void Readings::truncate(Set set, std::size_t num_frames) {
  all_.resize(set.end);
  frames_.resize(num_frames);
}

void Readings::save(Set set, std::vector<Reading>& readings, std::vector<Frame>& frames) const {
  readings.assign(all_.begin() + static_cast<std::ptrdiff_t>(set.begin),
                  all_.begin() + static_cast<std::ptrdiff_t>(set.end));
  // Parents lie before their children: one pass down marks what is needed, one up renumbers.
  std::vector<std::int32_t> renumbered(frames_.size(), -1);
  for (const Reading& reading : readings) {
    for (std::int32_t i = reading.stack; i >= 0; i = frames_[static_cast<std::size_t>(i)].parent) {
      if (std::exchange(renumbered[static_cast<std::size_t>(i)], 0) == 0) break;
    }
  }
  frames.clear();
  for (std::size_t i = 0; i < frames_.size(); ++i) {
    if (renumbered[i] < 0) continue;
    renumbered[i] = static_cast<std::int32_t>(frames.size());
    Frame frame = frames_[i];
    if (frame.parent >= 0) frame.parent = renumbered[static_cast<std::size_t>(frame.parent)];
    frames.push_back(frame);
  }
  for (Reading& reading : readings) {
    if (reading.stack >= 0) reading.stack = renumbered[static_cast<std::size_t>(reading.stack)];
  }
}

JsonState::JsonState(std::shared_ptr<const JsonGrammar> grammar) : grammar_(std::move(grammar)) {
  Readings readings(*grammar_);
  const Readings::Set set = readings.start();
  CHECK(!set.is_empty(), "a compiled grammar has a first byte");
  readings.save(set, readings_, frames_);
  is_complete_ = set.is_complete;
}

bool JsonState::advance(std::uint8_t byte) {
  const char c = static_cast<char>(byte);
  return advance(std::string_view(&c, 1));
}

bool JsonState::advance(std::string_view bytes) {
  if (bytes.empty()) return true;
  Readings readings(*grammar_);
  Readings::Set set = readings.load(readings_, frames_);
  for (const char c : bytes) {
    set = readings.step(set, static_cast<std::uint8_t>(c));
    if (set.is_empty()) return false;
  }
  readings.save(set, readings_, frames_);
  is_complete_ = set.is_complete;
  return true;
}

}  // namespace llorch::grammar
