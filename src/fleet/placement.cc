#include "fleet/placement.h"

#include <algorithm>

namespace llorch::fleet {
namespace {

constexpr double kHarmFast = 0.25;
constexpr double kHarmSpread = 1;
constexpr double kExactShare = 0.8;      // of the score of another kind of device
constexpr double kLoadMustBeat = 0.7;    // of waiting, or models would be thrown out for a trifle
constexpr std::size_t kRefusedMax = 32;  // lines

constexpr std::array<std::string_view, kRefusals> kNames = {
    "",
    "pinned to another host",
    "its host lacks a label",
    "context too small",
    "cannot continue an answer",
    "no program for this device",
    "too big for the device",
    "no room on its disk",
    "host not connected",
    "draining",
    "failed several times",
    "another kind of device",
    "runs another suspect",
    "memory in use",
    "its memory is in use by workers that are at work",
    "makes room for another model",
    "load failed a moment ago",
    "load broke off, tried again soon",
    "is loading already",
    "runs there already"};

// What holds for a worker and for a device alike.
template <class View>
Refusal refuse_host(const View& view, const JobView& job) {
  if (job.mode == Mode::Pin && view.host != job.pin) return Refusal::PinnedElsewhere;
  if ((job.labels & ~view.labels) != 0) return Refusal::Labels;
  if (view.context != 0 && view.context < job.needed_context) return Refusal::ContextTooSmall;
  return view.closed;
}

Refusal refuse(const WorkerView& view, const JobView& job) {
  if (job.must_resume && !view.can_resume) return Refusal::CannotResume;
  const Refusal refusal = refuse_host(view, job);
  if (refusal != Refusal::None) return refusal;
  if (job.must_be_exact && view.exactness != job.exactness) return Refusal::NotExact;
  return job.is_suspect && view.has_suspect ? Refusal::OtherSuspect : Refusal::None;
}

float cached_tokens(const WorkerView& view, const JobView& job) {
  for (const PrefixHit& hit : job.hits) {
    if (hit.worker == view.worker)
      return view.trust * static_cast<float>(hit.blocks * job.tokens_per_block);
  }
  return 0;
}

void add_speed_terms(ScoreLine& line, const SpeedRow& row, const JobView& job, std::uint32_t busy) {
  const double alone = row.decode_tps[batch_step(busy)];
  const double shared = row.decode_tps[batch_step(busy + 1)];
  const double uncached =
      std::max(0.0, job.prompt_tokens - static_cast<double>(line.cached_tokens));
  const double weight = job.mode == Mode::Spread ? kHarmSpread : kHarmFast;
  const double slower = std::max(0.0, 1 / shared - 1 / alone);  // seconds a token, each neighbour
  line.prefill_ms = static_cast<float>(1000 * uncached / row.prefill_tps);
  line.decode_ms = static_cast<float>(1000 * job.expected_output / shared);
  line.harm_ms = static_cast<float>(weight * 1000 * busy * job.expected_output * slower);
  line.finish_ms = line.wait_ms + line.load_ms + line.prefill_ms + line.decode_ms + line.harm_ms;
}

bool has_room(const WorkerView& view, const SpeedRow& row) {
  // A guess is worth one trial at a time.
  const std::uint32_t slots = row.is_guess() ? 1 : view.slots;
  return !view.is_loading && !view.is_paused && view.busy < slots;
}

ScoreLine score(const Snapshot& snapshot, const WorkerView& view, const JobView& job,
                bool has_free_slot) {
  ScoreLine line{.worker = view.worker, .host = view.host};
  std::uint32_t busy = view.busy;
  if (!has_free_slot) {
    line.wait_ms = static_cast<float>(std::max(0.0, millis_between(snapshot.now, view.next_free)) +
                                      snapshot.line_ms);
    busy = busy > 0 ? busy - 1U : 0U;  // one has left when it begins
  }
  line.cached_tokens = cached_tokens(view, job);
  add_speed_terms(line, snapshot.speeds->row(view.speed), job, busy);
  if (job.exactness != 0 && view.exactness == job.exactness) {
    line.bonus_ms = static_cast<float>(kExactShare - 1) * line.finish_ms;
    line.finish_ms += line.bonus_ms;
  }
  return line;
}

bool is_better(const ScoreLine& a, const ScoreLine& b) {
  if (a.finish_ms != b.finish_ms) return a.finish_ms < b.finish_ms;
  return a.worker < b.worker;
}

// The best few, as a heap with the worst of them on top.
void keep(ScoreSheet& sheet, const ScoreLine& line) {
  ++sheet.scored;
  if (sheet.best.size() == ScoreSheet::kLinesMax) {
    if (!is_better(line, sheet.best.front())) return;
    std::pop_heap(sheet.best.begin(), sheet.best.end(), is_better);
    sheet.best.pop_back();
  }
  sheet.best.push_back(line);
  std::push_heap(sheet.best.begin(), sheet.best.end(), is_better);
}

void turn_away(ScoreSheet& sheet, const ScoreLine& line) {
  ++sheet.refusals[static_cast<std::size_t>(line.refusal)];
  if (sheet.refused.size() < kRefusedMax) sheet.refused.push_back(line);
}

struct Best {
  ScoreLine line;
  bool is_set = false;

  void offer(const ScoreLine& other) {
    if (is_set && !is_better(other, line)) return;
    line = other;
    is_set = true;
  }
  float finish() const { return is_set ? line.finish_ms : std::numeric_limits<float>::infinity(); }
};

Decision decide_by(Choice choice, const ScoreLine& line) {
  return {.choice = choice,
          .worker = line.worker,
          .device = line.device,
          .start_ms = line.wait_ms + line.load_ms,
          .finish_ms = line.finish_ms,
          .service_ms = line.prefill_ms + line.decode_ms,
          .prefill_ms = line.prefill_ms,
          .cached_tokens = line.cached_tokens};
}

Decision choose(const Best& free, const Best& busy, const Best& load, const ScoreSheet& sheet) {
  const float waiting = std::min(free.finish(), busy.finish());
  if (load.is_set && load.finish() < static_cast<float>(kLoadMustBeat) * waiting)
    return decide_by(Choice::Load, load.line);
  if (free.is_set && free.finish() <= busy.finish()) return decide_by(Choice::UseWorker, free.line);
  if (busy.is_set) return decide_by(Choice::Wait, busy.line);
  std::uint32_t may_pass = 0;
  for (std::size_t i = static_cast<std::size_t>(kLastLasting) + 1; i < kRefusals; ++i)
    may_pass += sheet.refusals[i];
  return {.choice = may_pass > 0 ? Choice::Wait : Choice::Refuse};
}

}  // namespace

std::string_view name(Refusal refusal) {
  return kNames[static_cast<std::size_t>(refusal)];
}

Decision place(const Snapshot& snapshot, const JobView& job, ScoreSheet& sheet) {
  sheet.best.clear();
  sheet.refused.clear();
  sheet.refusals.fill(0);
  sheet.scored = 0;
  Best free;
  Best busy;
  Best load;
  for (const WorkerView& view : snapshot.workers) {
    if (const Refusal refusal = refuse(view, job); refusal != Refusal::None) {
      turn_away(sheet, {.worker = view.worker, .host = view.host, .refusal = refusal});
      continue;
    }
    const bool has_free_slot = has_room(view, snapshot.speeds->row(view.speed));
    const ScoreLine line = score(snapshot, view, job, has_free_slot);
    (has_free_slot ? free : busy).offer(line);
    keep(sheet, line);
  }
  for (const DeviceView& view : snapshot.devices) {
    ScoreLine line{.device = view.device, .host = view.host};
    line.refusal = refuse_host(view, job);
    if (line.refusal != Refusal::None) {
      turn_away(sheet, line);
      continue;
    }
    line.load_ms = static_cast<float>(view.load_ms);
    add_speed_terms(line, snapshot.speeds->row(view.speed), job, 0);
    load.offer(line);
    keep(sheet, line);
  }
  std::sort_heap(sheet.best.begin(), sheet.best.end(), is_better);
  Decision decision = choose(free, busy, load, sheet);
  const bool is_nowhere = sheet.scored == 0;
  if (is_nowhere && sheet.refusals[static_cast<std::size_t>(Refusal::ContextTooSmall)] > 0) {
    // A prompt's length is a guess: where nobody seems to have room, a worker counts and says so.
    JobView uncounted = job;
    uncounted.needed_context = 0;
    return place(snapshot, uncounted, sheet);
  }
  const bool starts = decision.choice == Choice::UseWorker || decision.choice == Choice::Load;
  if (starts && decision.start_ms > job.remaining_ms) decision.choice = Choice::TooLate;
  return decision;
}

}  // namespace llorch::fleet
