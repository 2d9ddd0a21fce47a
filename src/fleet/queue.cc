#include "fleet/queue.h"

#include <algorithm>

#include "base/check.h"

namespace llorch::fleet {
namespace {

std::uint64_t place_key(LineIndex line, KeyIndex key, std::uint8_t level) {
  CHECK(line < (1U << 24U), "fewer lines than that");
  return (std::uint64_t{line} << 40U) | (std::uint64_t{key} << 8U) | level;
}

}  // namespace

Queue::Line& Queue::line_of(LineIndex line) {
  if (line >= lines_.size()) lines_.resize(std::size_t{line} + 1);
  return lines_[line];
}

Queue::KeyShare& Queue::share_of(KeyIndex key) {
  if (key >= keys_.size()) keys_.resize(std::size_t{key} + 1);
  return keys_[key];
}

Queue::Node& Queue::new_node(const Waiting& waiting) {
  if (waiting.job >= nodes_.size()) nodes_.resize(std::size_t{waiting.job} + 1);
  Node& node = nodes_[waiting.job];
  CHECK(node.fifo == kNone, "a job waits once");
  node = Node{.line = waiting.line,
              .key = waiting.key,
              .cost_s = waiting.cost_s,
              .submitted = waiting.submitted};
  ++size_;
  return node;
}

// A key that was away gets no credit for that.
void Queue::wake_key(KeyIndex key) {
  KeyShare& share = share_of(key);
  if (!share.fifos.empty() || active_.empty()) return;
  share.spent_s = std::max(share.spent_s, active_.begin()->first);
}

Queue::FifoIndex Queue::fifo_of(LineIndex line, KeyIndex key, Level level) {
  const auto [found, is_new] = by_place_.try_emplace(place_key(line, key, level), 0);
  if (!is_new) return found->second;
  FifoIndex index = static_cast<FifoIndex>(fifos_.size());
  if (free_fifos_.empty()) {
    fifos_.emplace_back();
  } else {
    index = free_fifos_.back();
    free_fifos_.pop_back();
  }
  found->second = index;
  KeyShare& share = share_of(key);
  if (share.fifos.empty()) {
    share.ranked_spent_s = share.spent_s;
    active_.emplace(share.spent_s, key);
  }
  share.fifos.push_back(index);
  fifos_[index] = Fifo{.line = line, .key = key, .level = level, .ranked_spent_s = share.spent_s};
  line_of(line).levels[level].fifos.emplace(share.spent_s, index);
  return index;
}

void Queue::free_fifo(FifoIndex index) {
  const Fifo& fifo = fifos_[index];
  lines_[fifo.line].levels[fifo.level].fifos.erase({fifo.ranked_spent_s, index});
  by_place_.erase(place_key(fifo.line, fifo.key, fifo.level));
  KeyShare& share = keys_[fifo.key];
  share.fifos.erase(std::find(share.fifos.begin(), share.fifos.end(), index));
  if (share.fifos.empty()) active_.erase({share.ranked_spent_s, fifo.key});
  free_fifos_.push_back(index);
}

// Puts everything of a key where its spending says now.
void Queue::rank_key(KeyIndex key) {
  KeyShare& share = keys_[key];
  if (share.fifos.empty() || share.ranked_spent_s == share.spent_s) return;
  active_.erase({share.ranked_spent_s, key});
  active_.emplace(share.spent_s, key);
  share.ranked_spent_s = share.spent_s;
  for (const FifoIndex index : share.fifos) {
    Fifo& fifo = fifos_[index];
    auto& fifos = lines_[fifo.line].levels[fifo.level].fifos;
    fifos.erase({fifo.ranked_spent_s, index});
    fifo.ranked_spent_s = share.spent_s;
    fifos.emplace(share.spent_s, index);
  }
}

void Queue::link(JobIndex job, Level level, bool in_front) {
  const FifoIndex index = fifo_of(nodes_[job].line, nodes_[job].key, level);
  Node& node = nodes_[job];
  Fifo& fifo = fifos_[index];
  node.fifo = index;
  JobIndex& end = in_front ? fifo.first : fifo.last;
  (in_front ? node.after : node.before) = end;
  (in_front ? node.before : node.after) = kNone;
  if (end != kNone) (in_front ? nodes_[end].before : nodes_[end].after) = job;
  end = job;
  JobIndex& other_end = in_front ? fifo.last : fifo.first;
  if (other_end == kNone) other_end = job;
  if (in_front && node.after != kNone) {  // differences count, so these may pass zero
    node.number = nodes_[node.after].number - 1;
    node.cost_before_s = nodes_[node.after].cost_before_s - node.cost_s;
  } else {
    node.number = fifo.pushed++;
    node.cost_before_s = fifo.pushed_s;
    fifo.pushed_s += node.cost_s;
  }
  ++fifo.size;
  ++keys_[node.key].waiting;
  Turns& turns = lines_[node.line].levels[level];
  turns.cost_s += node.cost_s;
  ++turns.size;
}

void Queue::unlink(JobIndex job) {
  Node& node = nodes_[job];
  const FifoIndex index = node.fifo;
  Fifo& fifo = fifos_[index];
  (node.before == kNone ? fifo.first : nodes_[node.before].after) = node.after;
  (node.after == kNone ? fifo.last : nodes_[node.after].before) = node.before;
  Turns& turns = lines_[node.line].levels[fifo.level];
  turns.cost_s = turns.size == 1 ? 0 : turns.cost_s - node.cost_s;
  --turns.size;
  --keys_[node.key].waiting;
  if (fifo.level == kBatch) drop_batch(job);
  node.fifo = kNone;
  if (--fifo.size == 0) free_fifo(index);
}

void Queue::add_batch(JobIndex job, bool in_front) {
  Line& here = lines_[nodes_[job].line];
  JobIndex& end = in_front ? here.oldest_batch : here.youngest_batch;
  JobIndex& other_end = in_front ? here.youngest_batch : here.oldest_batch;
  (in_front ? nodes_[job].younger : nodes_[job].older) = end;
  if (end != kNone) (in_front ? nodes_[end].older : nodes_[end].younger) = job;
  end = job;
  if (other_end == kNone) other_end = job;
}

void Queue::drop_batch(JobIndex job) {
  Node& node = nodes_[job];
  Line& here = lines_[node.line];
  (node.older == kNone ? here.oldest_batch : nodes_[node.older].younger) = node.younger;
  (node.younger == kNone ? here.youngest_batch : nodes_[node.younger].older) = node.older;
  node.older = kNone;
  node.younger = kNone;
}

// From here on it competes as if it were an interactive one that came just now.
void Queue::age(LineIndex line, TimePoint now) {
  while (true) {
    const JobIndex oldest = lines_[line].oldest_batch;
    if (oldest == kNone || now - nodes_[oldest].submitted < kAgeing) return;
    unlink(oldest);
    link(oldest, kUrgent, /*in_front=*/false);
  }
}

void Queue::push(const Waiting& waiting, TimePoint now) {
  new_node(waiting);
  line_of(waiting.line);
  age(waiting.line, now);
  wake_key(waiting.key);
  const bool is_batch = waiting.cls == JobClass::Batch && now - waiting.submitted < kAgeing;
  link(waiting.job, is_batch ? kBatch : kUrgent, /*in_front=*/false);
  if (is_batch) add_batch(waiting.job, /*in_front=*/false);
}

void Queue::push_front(const Waiting& waiting, TimePoint now) {
  new_node(waiting);
  line_of(waiting.line);
  wake_key(waiting.key);
  const bool is_batch = waiting.cls == JobClass::Batch && now - waiting.submitted < kAgeing;
  link(waiting.job, is_batch ? kBatch : kUrgent, /*in_front=*/true);
  if (is_batch) add_batch(waiting.job, /*in_front=*/true);
}

void Queue::push_mover(const Waiting& waiting, std::uint64_t replay_tokens) {
  Node& node = new_node(waiting);
  node.fifo = kMoverFifo;
  node.replay_tokens = replay_tokens;
  Line& here = line_of(waiting.line);
  here.movers.emplace(replay_tokens, waiting.job);
  here.movers_s += waiting.cost_s;
  ++share_of(waiting.key).waiting;
}

JobIndex Queue::front(LineIndex line, TimePoint now) {
  if (line >= lines_.size()) return kNone;
  age(line, now);
  return peek(line);
}

JobIndex Queue::peek(LineIndex line) const {
  if (line >= lines_.size()) return kNone;
  const Line& here = lines_[line];
  if (!here.movers.empty()) return here.movers.begin()->second;
  for (const Turns& turns : here.levels) {
    if (!turns.fifos.empty()) return fifos_[turns.fifos.begin()->second].first;
  }
  return kNone;
}

bool Queue::take(JobIndex job) {
  if (!holds(job)) return false;
  --size_;
  Node& node = nodes_[job];
  if (node.fifo != kMoverFifo) {
    unlink(job);
    return true;
  }
  Line& here = lines_[node.line];
  here.movers.erase({node.replay_tokens, job});
  here.movers_s = here.movers.empty() ? 0 : here.movers_s - node.cost_s;
  --keys_[node.key].waiting;
  node.fifo = kNone;
  return true;
}

void Queue::charge(KeyIndex key, double slot_s) {
  share_of(key).spent_s += slot_s;
  rank_key(key);
}

std::size_t Queue::waiting(LineIndex line) const {
  if (line >= lines_.size()) return 0;
  const Line& here = lines_[line];
  return here.movers.size() + here.levels[kUrgent].size + here.levels[kBatch].size;
}

std::size_t Queue::waiting_of_key(KeyIndex key) const {
  return key < keys_.size() ? keys_[key].waiting : 0;
}

double Queue::cost_s(LineIndex line) const {
  if (line >= lines_.size()) return 0;
  const Line& here = lines_[line];
  return here.movers_s + here.levels[kUrgent].cost_s + here.levels[kBatch].cost_s;
}

double Queue::spent_s(KeyIndex key) const {
  return key < keys_.size() ? keys_[key].spent_s : 0;
}

// `before` jobs of its own key are served first, and as many of every other key that has them.
QueuePlace Queue::estimate(LineIndex line, Level level, std::uint64_t before,
                           double before_s) const {
  const Line& here = lines_[line];
  const Turns& turns = here.levels[level];
  const std::uint64_t rounds = (before + 1) * std::max<std::size_t>(1, turns.fifos.size());
  std::uint64_t ahead = std::min<std::uint64_t>(rounds - 1, turns.size);
  double ahead_s = turns.cost_s;
  if (ahead < turns.size && before > 0) {
    ahead_s = std::min(turns.cost_s, before_s * static_cast<double>(turns.fifos.size()));
  } else if (ahead < turns.size) {
    ahead_s = turns.cost_s * static_cast<double>(ahead) / static_cast<double>(turns.size);
  }
  ahead += here.movers.size();
  ahead_s += here.movers_s;
  if (level == kBatch) {
    ahead += here.levels[kUrgent].size;
    ahead_s += here.levels[kUrgent].cost_s;
  }
  return {static_cast<std::uint32_t>(ahead + 1), ahead_s};
}

QueuePlace Queue::find_place(JobIndex job) const {
  if (!holds(job)) return {};
  const Node& node = nodes_[job];
  if (node.fifo == kMoverFifo) return {1, 0};
  const Fifo& fifo = fifos_[node.fifo];
  const Node& first = nodes_[fifo.first];
  // Those that left from the middle are still counted: at most too many.
  const std::uint64_t before = std::min<std::uint64_t>(node.number - first.number, fifo.size - 1);
  QueuePlace place = estimate(node.line, fifo.level, before,
                              std::max(0.0, node.cost_before_s - first.cost_before_s));
  const auto most = static_cast<std::uint32_t>(waiting(node.line));
  place.position = std::min(place.position, std::max(1U, most));
  return place;
}

QueuePlace Queue::place_at_end(LineIndex line, KeyIndex key, JobClass cls) const {
  if (line >= lines_.size()) return {1, 0};
  const Level level = cls == JobClass::Batch ? kBatch : kUrgent;
  const auto found = by_place_.find(place_key(line, key, level));
  if (found == by_place_.end()) return estimate(line, level, 0, 0);
  const Fifo& fifo = fifos_[found->second];
  const Node& first = nodes_[fifo.first];
  return estimate(line, level, fifo.size, fifo.pushed_s - first.cost_before_s);
}

}  // namespace llorch::fleet
