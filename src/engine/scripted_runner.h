// Tests only: a model without weights that knows what a cache must contain. Each slot of the cache
// holds a digest of the token there and of all tokens before it, as keys and values do; the logits
// are a function of that digest. A wrong block, a stale one or one half written is noticed at once,
// or else becomes wrong ids.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "engine/random.h"
#include "engine/request.h"
#include "engine/softmax.h"
#include "model/runner.h"

namespace llorch::engine {

inline std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline std::uint64_t extend_digest(std::uint64_t before, TokenId token) {
  return mix_bits(before ^ mix_bits(static_cast<std::uint64_t>(token) + 1));
}

// In [-4, 4).
inline float digest_value(std::uint64_t digest, std::size_t index) {
  return static_cast<float>(mix_bits(digest + index) >> 40) * 0x1.0p-21F - 4.0F;
}

class ScriptedRunner : public model::ModelRunner {
 public:
  struct Options {
    model::RunnerLimits limits = {};
    std::int32_t vocab_size = 50;
    std::int32_t hidden_dim = 8;
    std::int32_t context_length = 4096;
  };
  explicit ScriptedRunner(const Options& options)
      : options_(options),
        cache_(static_cast<std::size_t>(options.limits.num_blocks * options.limits.block_tokens)) {
    if (options_.limits.rows == 0) options_.limits.rows = 64;
  }

  std::int32_t vocab_size() const override { return options_.vocab_size; }
  std::int32_t hidden_dim() const override { return options_.hidden_dim; }
  std::int32_t context_length() const override { return options_.context_length; }
  const model::RunnerLimits& limits() const override { return options_.limits; }

  // Runs in the middle of each step; what it makes true of plan.abort counts.
  std::function<void(const model::BatchPlan&)> during_step = [](const model::BatchPlan&) {};
  // Changes the logits of a row before they are given out.
  std::function<void(const model::BatchRow&, std::span<float>)> change_logits =
      [](const model::BatchRow&, std::span<float>) {};

  // When a step is computed: as soon as it is submitted, or as late as its results are wanted.
  bool is_late = false;
  std::int64_t num_overlapped = 0;  // steps submitted while another one was in flight
  std::int64_t num_edited = 0;      // calls of choose()

  void submit(const model::BatchPlan& plan) override {
    check(plan);
    Flight flight{.rows = plan.rows, .abort = plan.abort};
    for (const std::span<const std::int32_t> table : plan.block_tables)
      flight.tables.emplace_back(table.begin(), table.end());
    CHECK(std::ssize(flights_) < options_.limits.steps_in_flight, "steps in flight");
    CHECK(flights_.empty() || !flights_.back().waits_for_edits, "ids that nobody had chosen");
    flight.waits_for_edits = flight.chooses_later = plan.chooses_later;
    flight.is_behind = !flights_.empty();
    for (const model::BatchRow& row : plan.rows) check_awaited(row);
    flight.num_ids = std::ranges::count_if(plan.rows, &model::BatchRow::wants_argmax);
    if (!is_late) compute(flight);
    num_overlapped += flights_.empty() ? 0 : 1;
    flights_.push_back(std::move(flight));
  }

  void choose(std::span<const model::RowEdits> edits) override {
    CHECK(!flights_.empty() && flights_.back().waits_for_edits, "nothing to choose");
    Flight& flight = flights_.back();
    CHECK(std::ssize(edits) == flight.num_ids);
    flight.waits_for_edits = false;
    ++num_edited;
    std::int64_t num_changes = 0;
    for (const model::RowEdits& row : edits) {
      flight.edits.push_back({row,
                              {row.changes.begin(), row.changes.end()},
                              {row.may_follow.begin(), row.may_follow.end()}});
      num_changes += std::ssize(row.changes);
    }
    CHECK(num_changes <= options_.limits.logit_changes);
    if (!is_late) choose_ids(flight);
  }

  model::StepOutput collect() override {
    CHECK(!flights_.empty(), "nothing to collect");
    current_ = std::move(flights_.front());
    flights_.pop_front();
    if (is_late) compute(current_);
    return {.aborted = current_.aborted,
            .logits = current_.logits,
            .argmax = current_.argmax,
            .hidden = current_.hidden};
  }

 private:
  struct Edits {
    model::RowEdits row;  // but for its spans, which are these
    std::vector<model::LogitChange> changes;
    std::vector<std::uint32_t> may_follow;
  };
  struct Flight {
    std::vector<model::BatchRow> rows;
    bool chooses_later = false;
    bool waits_for_edits = false;
    std::vector<Edits> edits;
    std::vector<std::pair<model::BatchRow, std::vector<float>>> unchosen;
    std::vector<std::vector<std::int32_t>> tables;
    const std::atomic<bool>* abort = nullptr;
    bool is_behind = false;  // submitted while another one was in flight
    std::int64_t num_ids = 0;
    bool aborted = false;
    std::vector<float> logits, hidden;
    std::vector<std::int32_t> argmax;
  };

  void compute(Flight& flight) {
    model::BatchPlan plan;
    plan.rows = flight.rows;
    plan.block_tables.assign(flight.tables.begin(), flight.tables.end());
    plan.abort = flight.abort;
    during_step(plan);
    const bool is_given_up = plan.abort != nullptr && plan.abort->load();
    if (is_given_up || (flight.is_behind && was_aborted_)) {
      // Half of the layers are written, which is worth nothing.
      for (const model::BatchRow& row : plan.rows) slot(plan, row.sequence, row.position) = {};
      flight.aborted = was_aborted_ = true;
      return;
    }
    was_aborted_ = false;
    for (const model::BatchRow& row : plan.rows) {
      const std::uint64_t before = digest_before(plan, row);
      const std::uint64_t digest = extend_digest(before, token_of(row));
      slot(plan, row.sequence, row.position) = {.digest = digest, .written = true};
      if (row.wants_logits || row.wants_argmax) add_logits(row, digest, flight);
      if (row.wants_hidden) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(options_.hidden_dim); ++i)
          flight.hidden.push_back(digest_value(digest, i));
      }
    }
    last_ids_ = flight.argmax;
    if (is_late && flight.chooses_later) choose_ids(flight);
  }

  void choose_ids(Flight& flight) {
    if (flight.aborted) return;
    for (std::size_t i = 0; i < flight.edits.size(); ++i) {
      auto& [row, logits] = flight.unchosen[i];
      const bool was_finite = std::ranges::all_of(logits, [](float x) { return std::isfinite(x); });
      edit(flight.edits[i], logits);
      flight.argmax.push_back(was_finite ? choose(row, logits) : -1);
    }
    last_ids_ = flight.argmax;
  }

  static void edit(const Edits& edits, std::span<float> logits) {
    for (const model::LogitChange& change : edits.changes)
      logits[static_cast<std::size_t>(change.id)] += change.bias;
    for (std::size_t id = 0; id < logits.size() && !edits.may_follow.empty(); ++id) {
      if ((edits.may_follow[id / 32] >> (id % 32) & 1U) == 0)
        logits[id] = -std::numeric_limits<float>::infinity();
    }
    for (const model::LogitChange& change : edits.changes) {
      float& logit = logits[static_cast<std::size_t>(change.id)];
      const model::RowEdits& by = edits.row;
      if (change.count >= 0)
        logit = logit > 0 ? logit / by.repetition_penalty : logit * by.repetition_penalty;
      if (change.count > 0)
        logit -= static_cast<float>(change.count) * by.frequency_penalty + by.presence_penalty;
    }
  }

  // Of the step computed before, where it was not known when the row was submitted.
  TokenId token_of(const model::BatchRow& row) const {
    return row.awaited < 0 ? row.token
                           : std::max(0, last_ids_.at(static_cast<std::size_t>(row.awaited)));
  }

  void add_logits(const model::BatchRow& row, std::uint64_t digest, Flight& flight) {
    std::vector<float> logits(static_cast<std::size_t>(options_.vocab_size));
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = digest_value(digest, i);
    change_logits(row, logits);
    if (row.wants_logits) {
      flight.logits.insert(flight.logits.end(), logits.begin(), logits.end());
      return;
    }
    if (flight.chooses_later) {
      flight.unchosen.emplace_back(row, std::move(logits));
      return;
    }
    const bool is_finite = std::ranges::all_of(logits, [](float x) { return std::isfinite(x); });
    flight.argmax.push_back(is_finite ? choose(row, logits) : -1);
  }

  static TokenId choose(const model::BatchRow& row, std::span<const float> logits) {
    if (row.temperature == 0)
      return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
    LogitScan scan(logits.size());
    scan.run(logits);
    SoftmaxSums sums(logits.size());
    __extension__ using Wide = unsigned __int128;
    return static_cast<TokenId>(sums.draw(
        logits, scan, Weighing(scan.max(), row.temperature),
        [&](Weight total) { return static_cast<Weight>((Wide{total} * row.draw) >> kDrawBits); }));
  }

  struct Slot {
    std::uint64_t digest = 0;
    bool written = false;
  };

  Slot& slot(const model::BatchPlan& plan, std::int32_t sequence, std::int32_t position) {
    const std::span<const std::int32_t> table =
        plan.block_tables[static_cast<std::size_t>(sequence)];
    const auto size = static_cast<std::size_t>(options_.limits.block_tokens);
    const auto place = static_cast<std::size_t>(position);
    CHECK(place / size < table.size(), "a row without a block");
    const std::int32_t block = table[place / size];
    CHECK(block >= 0 && block < options_.limits.num_blocks);
    return cache_[static_cast<std::size_t>(block) * size + place % size];
  }

  // Walks the whole past of a row: every slot must have been written, each a continuation of the
  // one before. Which tokens they stand for shows in the logits.
  std::uint64_t digest_before(const model::BatchPlan& plan, const model::BatchRow& row) {
    for (std::int32_t position = 0; position < row.position; ++position) {
      CHECK(slot(plan, row.sequence, position).written, "a row reads what nobody wrote");
    }
    return row.position == 0 ? 0 : slot(plan, row.sequence, row.position - 1).digest;
  }

  // Behind another step: one row for each sequence, with the id that the other one finds.
  void check_awaited(const model::BatchRow& row) const {
    CHECK(flights_.empty() == (row.awaited < 0));
    if (flights_.empty()) return;
    CHECK(row.awaited < flights_.back().num_ids);
    CHECK(!row.wants_logits && !row.wants_hidden, "a step that is behind wants ids alone");
  }

  void check(const model::BatchPlan& plan) const {
    const model::RunnerLimits& limits = options_.limits;
    CHECK(!plan.rows.empty() && std::ssize(plan.rows) <= limits.rows, "rows of a step");
    CHECK(std::ssize(plan.block_tables) <= limits.sequences, "sequences of a step");
    std::vector<std::int32_t> next(plan.block_tables.size(), -1);
    std::vector<std::int32_t> first(plan.block_tables.size(), -1);
    std::int32_t num_logits = 0;
    for (const model::BatchRow& row : plan.rows) {
      CHECK(row.token >= 0 && row.token < options_.vocab_size);
      CHECK(row.position >= 0 && row.position < options_.context_length);
      auto& expected = next.at(static_cast<std::size_t>(row.sequence));
      if (expected < 0) first[static_cast<std::size_t>(row.sequence)] = row.position;
      CHECK(expected < 0 || expected == row.position, "positions without gaps");
      expected = row.position + 1;
      num_logits += row.wants_logits ? 1 : 0;
      CHECK(!row.wants_argmax || (limits.finds_argmax && !row.wants_logits));
      CHECK(row.temperature == 0 || limits.draws);
    }
    CHECK(num_logits <= limits.logit_rows);
    // A block that is written belongs to one sequence.
    std::multiset<std::int32_t> used;
    for (const std::span<const std::int32_t> table : plan.block_tables) {
      used.insert(table.begin(), table.end());
    }
    for (std::size_t i = 0; i < next.size(); ++i) {
      CHECK(next[i] > 0, "every sequence of a step has a row");
      for (std::int32_t p = first[i]; p < next[i]; ++p) {
        CHECK(used.count(plan.block_tables[i][static_cast<std::size_t>(p / limits.block_tokens)]) ==
                  1,
              "a block that others read is written");
      }
    }
  }

  Options options_;
  std::vector<Slot> cache_;  // (blocks, block_tokens)
  std::deque<Flight> flights_;
  std::vector<TokenId> last_ids_;  // of the step computed last
  bool was_aborted_ = false;       // that step
  Flight current_;                 // collected last
};

}  // namespace llorch::engine
