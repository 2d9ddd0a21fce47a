// Queue: jobs that wait for a worker, in the order in which they are served.
//
// Jobs that wait for the same workers stand in one line. First come those whose worker was lost,
// shortest replay first; then interactive jobs; then batch jobs, each of which joins the
// interactive ones of its key once it is kAgeing old. Among them keys take turns: served is the key
// that has had the least slot time so far, over all lines, and inside a key the oldest job. A key
// that comes back gets no credit for the time it was away. Every change costs O(log keys), none
// depends on how many jobs wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fleet/handles.h"
#include "fleet/records.h"

namespace llorch::fleet {

inline constexpr std::chrono::seconds kAgeing{60};

struct Waiting {
  JobIndex job = kNone;
  LineIndex line = kNone;
  KeyIndex key = kNone;
  JobClass cls = JobClass::Interactive;
  double cost_s = 0;      // slot time it is predicted to take
  TimePoint submitted{};  // of batch jobs; they come in this order
};

struct QueuePlace {
  std::uint32_t position = 0;  // 1: next. An upper bound: as if every key had as many before it
  double ahead_s = 0;          // slot time of those before it, likewise
};

class Queue {
 public:
  void push(const Waiting& waiting, TimePoint now);
  // A worker refused it: before all others of its key.
  void push_front(const Waiting& waiting, TimePoint now);
  // Its worker was lost: before all others, shortest replay first.
  void push_mover(const Waiting& waiting, std::uint64_t replay_tokens);

  // The next one of this line; kNone: nobody waits.
  JobIndex front(LineIndex line, TimePoint now);
  // The same as of the last change, for those who only look.
  JobIndex peek(LineIndex line) const;
  // Takes a job out, wherever it is. False: it does not wait.
  bool take(JobIndex job);
  // A key has been given slot time (or, negative, was charged too much before).
  void charge(KeyIndex key, double slot_s);

  bool holds(JobIndex job) const { return job < nodes_.size() && nodes_[job].fifo != kNone; }
  std::size_t size() const { return size_; }
  std::size_t waiting(LineIndex line) const;
  std::size_t waiting_of_key(KeyIndex key) const;
  double cost_s(LineIndex line) const;  // of all that wait for it
  double spent_s(KeyIndex key) const;
  // Where a job stands, and where one that came now would.
  QueuePlace find_place(JobIndex job) const;
  QueuePlace place_at_end(LineIndex line, KeyIndex key, JobClass cls) const;

 private:
  enum Level : std::uint8_t { kUrgent, kBatch, kLevels };
  using FifoIndex = std::uint32_t;
  static constexpr FifoIndex kMoverFifo = kNone - 1;

  struct Node {
    JobIndex before = kNone;  // in its fifo
    JobIndex after = kNone;
    JobIndex older = kNone;  // among the batch jobs of its line that have not aged
    JobIndex younger = kNone;
    FifoIndex fifo = kNone;  // kNone: does not wait; kMoverFifo: among the movers
    LineIndex line = kNone;
    KeyIndex key = kNone;
    double cost_s = 0;
    double cost_before_s = 0;  // pushed into its fifo before it, ever
    std::uint64_t number = 0;  // in its fifo, ever
    std::uint64_t replay_tokens = 0;
    TimePoint submitted{};
  };
  // The jobs of one key in one line.
  struct Fifo {
    JobIndex first = kNone;
    JobIndex last = kNone;
    LineIndex line = kNone;
    KeyIndex key = kNone;
    Level level = kUrgent;
    std::uint32_t size = 0;
    std::uint64_t pushed = 0;
    double pushed_s = 0;
    double ranked_spent_s = 0;  // under which it stands in its line
  };
  struct Turns {
    std::set<std::pair<double, FifoIndex>> fifos;  // by what their key has spent
    double cost_s = 0;
    std::size_t size = 0;
  };
  struct Line {
    std::array<Turns, kLevels> levels;
    std::set<std::pair<std::uint64_t, JobIndex>> movers;
    double movers_s = 0;
    JobIndex oldest_batch = kNone;
    JobIndex youngest_batch = kNone;
  };
  struct KeyShare {
    double spent_s = 0;
    double ranked_spent_s = 0;     // under which it stands among the active
    std::vector<FifoIndex> fifos;  // that are not empty
    std::uint32_t waiting = 0;
  };

  Node& new_node(const Waiting& waiting);
  Line& line_of(LineIndex line);
  KeyShare& share_of(KeyIndex key);
  void wake_key(KeyIndex key);
  FifoIndex fifo_of(LineIndex line, KeyIndex key, Level level);
  void link(JobIndex job, Level level, bool in_front);
  void unlink(JobIndex job);
  void free_fifo(FifoIndex index);
  void rank_key(KeyIndex key);
  void add_batch(JobIndex job, bool in_front);
  void drop_batch(JobIndex job);
  void age(LineIndex line, TimePoint now);
  QueuePlace estimate(LineIndex line, Level level, std::uint64_t before, double before_s) const;

  std::vector<Node> nodes_;  // by job
  std::vector<Fifo> fifos_;
  std::vector<FifoIndex> free_fifos_;
  std::unordered_map<std::uint64_t, FifoIndex> by_place_;  // (line, key, level)
  std::vector<Line> lines_;
  std::vector<KeyShare> keys_;
  std::set<std::pair<double, KeyIndex>> active_;  // keys that wait, by what they have spent
  std::size_t size_ = 0;
};

}  // namespace llorch::fleet
