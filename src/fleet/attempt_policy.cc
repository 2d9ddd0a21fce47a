// One try of a job on one worker: how it begins, what is learnt from it, what its end means.
#include <algorithm>

#include "base/check.h"
#include "fleet/decide.h"
#include "fleet/turn.h"

namespace llorch::fleet {
namespace {

constexpr Millis kRefusalPause{500};
constexpr Millis kLossPause{250};  // it may be dead: others first, until its pool has said so
constexpr std::uint32_t kByteAgeMaxMs = 25'000;
constexpr double kTokenAgeMinMs = 10'000;
constexpr double kTokenGapsMax = 20;
constexpr double kPrefillsMax = 4;  // times as long as predicted
constexpr std::uint32_t kTokensToLearn = 8;
constexpr const char* kPoisonText =
    "two workers died while they ran this request; it is not tried on a third";
constexpr float kTrustWeight = 1.0F / 8;

void enter(Job& job, Phase phase, TimePoint now) {
  job.phase = phase;
  job.phase_since = now;
}

// The job whose live attempt this is.
Job* find_attempt(Fleet& fleet, const AttemptId& attempt) {
  Job* job = find_job(fleet, attempt.job);
  const bool is_live = job != nullptr && attempt.boot == fleet.boot && job->worker != kNone &&
                       attempt.number == job->attempts;
  if (is_live) return job;
  ++fleet.counters.late_events;
  return nullptr;
}

std::uint64_t replay_tokens(const Job& job) {
  return job.prompt_tokens + job.told;
}

bool repeats_whole(const Job& job) {
  return job.facts.kind == JobKind::Embedding;
}

// More of its answer was told: it may have got past the place where a worker died.
void note_answer(Fleet& fleet, Job& job, const Worker& worker, std::uint64_t told) {
  job.told = std::max(job.told, told);
  if (job.told > 0 && job.exactness == 0 && worker.view != kNone)
    job.exactness = fleet.models[worker.model].views[worker.view].exactness;
  const bool was_pending = job.suspicion.pending > 0;
  note_told(job.suspicion, job.told);
  if (!was_pending || job.suspicion.is_suspect()) return;
  std::erase_if(fleet.obituaries, [&job](const Obituary& o) { return o.job == job.id; });
}

void learn(Turn& turn, const Job& job, const Worker& worker, const AttemptEnded& event) {
  Fleet& fleet = turn.fleet;
  if (worker.view == kNone) return;  // it died: its times are not a measure
  if (event.end == AttemptEnd::Completed && job.attempts == 1)
    fleet.speeds.learn_slot(job.line, predict_cost_s(fleet, job, 0), job.device_ms / 1000);
  const SpeedIndex speed = fleet.models[worker.model].views[worker.view].speed;
  const double read = static_cast<double>(event.prompt_tokens);
  if (event.prefill_ms > 0 && event.prompt_tokens >= kTokensToLearn) {
    fleet.speeds.learn_prefill(speed, 1000 * read / event.prefill_ms);
    fleet.speeds.learn_prefill(fleet.models[job.model].speed, 1000 * read / event.prefill_ms);
  }
  if (event.decode_ms > 0 && event.new_tokens >= kTokensToLearn) {
    const double tps = 1000 * event.new_tokens / event.decode_ms;
    fleet.speeds.learn_decode(speed, job.streams, tps);
    fleet.speeds.learn_decode(fleet.models[job.model].speed, 1, tps);
  }
  if (event.end == AttemptEnd::Completed) {
    fleet.speeds.learn_output(
        job.facts.key, job.model,
        static_cast<std::uint32_t>(job.told / std::max(1U, job.facts.choices)));
  }
}

void note_outcome(Worker& worker, const AttemptEnded& event, const Job& job, TimePoint now) {
  switch (event.end) {
    case AttemptEnd::Completed:
    case AttemptEnd::Failed:  // it answered
      worker.breaker.note_success();
      return;
    case AttemptEnd::Refused:
      worker.closed_until = now + kRefusalPause;
      worker.breaker.note_failure(now);
      return;
    case AttemptEnd::Lost:
      worker.closed_until = now + kLossPause;
      worker.breaker.note_failure(now);
      return;
    case AttemptEnd::Cut:
      if (job.cut_cause) {
        worker.breaker.note_failure(now);
      } else {
        worker.breaker.note_gone();
      }
  }
}

Waiting waiting_of(const Fleet& fleet, const Job& job) {
  return {.job = index_of(fleet, job),
          .line = job.line,
          .key = job.key,
          .cls = job.facts.cls,
          .cost_s = job.cost_s,
          .submitted = job.submitted};
}

// Moves a job that has lost its worker, or gives it up. Called again when a cause becomes known.
void move_or_fail(Turn& turn, Job& job) {
  CHECK(job.phase == Phase::Moving && job.worker == kNone, "it has lost its worker");
  Fleet& fleet = turn.fleet;
  const Model& model = fleet.models[job.model];
  const bool can_resume =
      model.views.empty() || std::any_of(model.views.begin(), model.views.end(),
                                         [](const WorkerView& view) { return view.can_resume; });
  const double prefill_tps = fleet.speeds.row(model.speed).prefill_tps;
  const LossVerdict verdict = judge_loss(
      {.suspicion = job.suspicion,
       .moves = job.moves,
       .has_told = job.told > 0 && !repeats_whole(job),
       .can_resume = can_resume,
       .remaining_ms =
           job.deadline == TimePoint::max() ? 1e18 : millis_between(turn.now, job.deadline),
       .replay_ms = 1000 * static_cast<double>(replay_tokens(job)) / prefill_tps});
  switch (verdict) {
    case LossVerdict::AwaitCause:  // explain_death calls again, at the latest after the patience
      return;
    case LossVerdict::Move:
      ++job.moves;
      ++fleet.counters.moves;
      job.cost_s = predict_cost_s(fleet, job, job.told);
      fleet.queue.push_mover(waiting_of(fleet, job), replay_tokens(job));
      return;
    case LossVerdict::Poison:
      return fail(turn, job, ErrorCode::Internal, kPoisonText);
    case LossVerdict::TooManyMoves:
      return fail(turn, job, ErrorCode::Unavailable,
                  "it lost its worker " + std::to_string(job.moves + 1) +
                      " times; look at `llorch hosts` before you send it again");
    case LossVerdict::TooLate:
      return fail(turn, job, ErrorCode::DeadlineExceeded,
                  "its worker was lost, and its deadline leaves no time to begin again");
    case LossVerdict::CannotResume:
      return fail(turn, job, ErrorCode::Unavailable,
                  "its worker was lost, and no other can continue an answer: update the pools");
  }
}

// A worker dies once: a job that was sent to a dead one has not killed it again. An older loss on
// the same worker (its link broke, say) is one with this one, and waits for its cause from now on.
void count_loss(Turn& turn, Job& job, std::uint64_t life, std::optional<LossCause> cause) {
  if (life == job.killed_life) return;
  std::vector<Obituary>& obituaries = turn.fleet.obituaries;
  const std::size_t older = std::erase_if(
      obituaries, [&](const Obituary& o) { return o.life == life && o.job == job.id; });
  if (older > 0) note_cause(job.suspicion, std::nullopt);
  note_loss(job.suspicion, cause, job.told);
  if (!cause) obituaries.push_back({life, turn.now, job.id});
  if (cause && can_be_its_doing(*cause)) job.killed_life = life;
}

void lose(Turn& turn, Job& job, const Worker& worker, std::optional<LossCause> cause) {
  Fleet& fleet = turn.fleet;
  if (!cause && worker.state == SeenState::Ended)
    cause = worker.cause.value_or(LossCause::WorkerError);
  count_loss(turn, job, worker.life, cause);
  job.lost_at = turn.now;
  job.from_host = worker.host;
  job.from_worker = worker.id;
  append(turn, job,
         LostRecord{.boot = fleet.boot,
                    .attempt = job.attempts,
                    .cause = cause.value_or(LossCause::WorkerError),
                    .kills = job.suspicion.kills,
                    .moves = static_cast<std::uint8_t>(job.moves + 1),
                    .at_ms = wall_ms(fleet, turn.now)},
         /*eager=*/false);
  enter(job, Phase::Moving, turn.now);
  move_or_fail(turn, job);
}

void refuse(Turn& turn, Job& job, const AttemptEnded& event) {
  if (++job.refusals >= kRefusalsMax) {
    return fail(turn, job, ErrorCode::Unavailable,
                "workers refused it " + std::to_string(job.refusals) + " times: " + event.message);
  }
  const bool was_moving = job.moves > 0;
  enter(job, was_moving ? Phase::Moving : Phase::Queued, turn.now);
  if (was_moving) {
    turn.fleet.queue.push_mover(waiting_of(turn.fleet, job), replay_tokens(job));
  } else {
    turn.fleet.queue.push_front(waiting_of(turn.fleet, job), turn.now);
  }
}

// The cause of one loss is known, or (none) will never be.
void settle_cause(Turn& turn, const Obituary& obituary, std::optional<LossCause> cause) {
  Fleet& fleet = turn.fleet;
  Job* job = find_job(fleet, obituary.job);
  if (job == nullptr) return;
  note_cause(job->suspicion, cause);
  if (cause && can_be_its_doing(*cause)) job->killed_life = obituary.life;
  if (job->phase != Phase::Moving) return;
  const ModelIndex model = job->model;
  const bool waits_for_cause = !job->is_parked && !fleet.queue.holds(index_of(fleet, *job));
  if (waits_for_cause) {
    move_or_fail(turn, *job);
    pump_model(turn, model);
  } else if (job->suspicion.kills >= kKillsMax) {
    fail(turn, *job, ErrorCode::Internal, kPoisonText);
  }
}

}  // namespace

void dispatch(Turn& turn, Job& job, const Decision& decision) {
  CHECK(job.worker == kNone, "one attempt at a time");
  CHECK(job.phase == Phase::Queued || job.phase == Phase::Moving, name(job.phase));
  CHECK(!job.stop, "a job that was told to stop is not sent");
  Fleet& fleet = turn.fleet;
  const JobIndex index = index_of(fleet, job);
  fleet.queue.take(index);
  fleet.queue.charge(job.key, job.cost_s);
  Worker& worker = fleet.workers[decision.worker];
  WorkerView& view = fleet.models[worker.model].views[worker.view];
  const bool is_moved = job.moves > 0;
  ++job.attempts;
  ++fleet.counters.attempts;
  job.worker = decision.worker;
  job.is_cut = false;
  job.cut_cause.reset();
  job.dispatched_at = turn.now;
  job.predicted_prefill_ms = decision.prefill_ms;
  job.predicted_cached = decision.cached_tokens;
  job.is_exact = job.exactness == 0 || job.exactness == view.exactness;
  worker.running.push_back({index, after_millis(turn.now, decision.service_ms)});
  worker.breaker.note_start(turn.now);
  job.streams = static_cast<std::uint32_t>(worker.running.size());
  enter(job, Phase::Dispatched, turn.now);
  const Host& host = fleet.hosts[worker.host];
  append(turn, job,
         DispatchedRecord{
             .boot = fleet.boot,
             .attempt = job.attempts,
             .host = host.id,
             .worker = worker.id,
             .why = fleet.limits.keeps_why ? sheet_text(fleet, fleet.sheet, job.facts.labels) : "",
             .at_ms = wall_ms(fleet, turn.now),
             .exactness = view.exactness},
         /*eager=*/false);
  turn.effects.open_attempt(
      {.attempt = {job.id, fleet.boot, job.attempts},
       .host = host.id,
       .worker = worker.id,
       .resumes = job.told > 0 && !repeats_whole(job),
       .is_exact = job.is_exact,
       .lost_for_ms = is_moved ? millis_between(job.lost_at, turn.now) : 0,
       .from_host = is_moved && job.from_host != kNone ? fleet.hosts[job.from_host].id : HostId(),
       .from_worker = job.from_worker});
  refresh_view(fleet, decision.worker, turn.now);
}

void note_started(Turn& turn, const AttemptStarted& event) {
  Fleet& fleet = turn.fleet;
  Job* job = find_attempt(fleet, event.attempt);
  if (job == nullptr) return;
  if (job->phase != Phase::Dispatched) return;  // it is being cut, or this was said before
  enter(*job, Phase::Running, turn.now);
  if (event.prompt_tokens > 0) job->prompt_tokens = event.prompt_tokens;
  append(turn, *job,
         StartedRecord{.boot = fleet.boot,
                       .attempt = job->attempts,
                       .prompt_tokens = event.prompt_tokens,
                       .cached_tokens = event.cached_tokens,
                       .at_ms = wall_ms(fleet, turn.now)},
         /*eager=*/false);
  const Worker& worker = fleet.workers[job->worker];
  if (worker.view == kNone) return;  // it has died since
  WorkerView& view = fleet.models[worker.model].views[worker.view];
  if (job->predicted_cached > 0 && event.prompt_tokens > 0) {  // else it did not say
    const float hit = std::min(1.0F, static_cast<float>(event.cached_tokens) *
                                         std::max(view.trust, 0.1F) / job->predicted_cached);
    view.trust += kTrustWeight * (hit - view.trust);
  }
  fleet.prefixes.note(job->prefix, job->worker, worker.start);
  if (job->moves > 0) {
    turn.effects.tell(
        job->id, {.kind = NoticeKind::Migrated,
                  .host = fleet.hosts[worker.host].id,
                  .worker = worker.id,
                  .from_host = job->from_host == kNone ? HostId() : fleet.hosts[job->from_host].id,
                  .from_worker = job->from_worker,
                  .at_token = job->told,
                  .gap_ms = millis_between(job->lost_at, turn.now),
                  .is_exact = job->is_exact});
  }
}

void cut(Turn& turn, Job& job, LossCause cause) {
  CHECK(job.worker != kNone, "there is an attempt to cut");
  if (!job.cut_cause) job.cut_cause = cause;
  if (std::exchange(job.is_cut, true)) return;
  turn.effects.cut_attempt({job.id, turn.fleet.boot, job.attempts});
}

void note_progress(Turn& turn, const Progress& event) {
  Fleet& fleet = turn.fleet;
  for (const Progress::Item& item : event.items) {
    Job* job = find_attempt(fleet, item.attempt);
    if (job == nullptr || job->phase != Phase::Running) continue;
    const Worker& worker = fleet.workers[job->worker];
    const bool was_suspect = job->suspicion.is_suspect();
    note_answer(fleet, *job, worker, item.told);
    if (was_suspect && !job->suspicion.is_suspect()) refresh_view(fleet, job->worker, turn.now);
    const double tps = fleet.speeds.row(fleet.models[job->model].speed).decode_tps[0];
    const double patience_ms = std::max(kTokenAgeMinMs, kTokenGapsMax * 1000 / tps) +
                               kPrefillsMax * job->predicted_prefill_ms;
    if (item.byte_age_ms > kByteAgeMaxMs) {
      cut(turn, *job, LossCause::Link);
    } else if (item.token_age_ms > patience_ms &&
               millis_between(worker.token_seen_at, turn.now) > patience_ms) {
      cut(turn, *job, LossCause::Hang);  // nobody on this worker gets any
    }
  }
}

void end_attempt(Turn& turn, const AttemptEnded& event) {
  Fleet& fleet = turn.fleet;
  Job* job = find_attempt(fleet, event.attempt);
  if (job == nullptr) return;
  const WorkerIndex index = std::exchange(job->worker, kNone);
  Worker& worker = fleet.workers[index];
  const double slot_ms = millis_between(job->dispatched_at, turn.now);
  job->device_ms += slot_ms;
  fleet.queue.charge(job->key, slot_ms / 1000 - job->cost_s);
  note_answer(fleet, *job, worker, event.told);
  if (event.prompt_tokens > 0) job->prompt_tokens = event.prompt_tokens;
  note_outcome(worker, event, *job, turn.now);
  learn(turn, *job, worker, event);
  const ModelIndex model = job->model;
  const Worker facts = {.id = worker.id,
                        .life = worker.life,
                        .host = worker.host,
                        .state = worker.state,
                        .cause = worker.cause};
  release_slot(fleet, index, index_of(fleet, *job), turn.now);
  if (job->stop) {
    finish_stopped(turn, *job);
  } else {
    switch (event.end) {
      case AttemptEnd::Completed:
        complete(turn, *job, event.stop_reason);
        break;
      case AttemptEnd::Failed:
        fail(turn, *job, event.code, event.message);
        break;
      case AttemptEnd::Refused:
        refuse(turn, *job, event);
        break;
      case AttemptEnd::Lost:
        lose(turn, *job, facts, event.cause ? event.cause : job->cut_cause);
        break;
      case AttemptEnd::Cut:
        lose(turn, *job, facts, job->cut_cause.value_or(LossCause::Link));
        break;
    }
  }
  pump_model(turn, model);
}

void explain_death(Turn& turn, std::uint64_t life, std::optional<LossCause> cause) {
  std::vector<Obituary> about;
  std::erase_if(turn.fleet.obituaries, [&](const Obituary& obituary) {
    if (obituary.life != life) return false;
    about.push_back(obituary);
    return true;
  });
  for (const Obituary& obituary : about) settle_cause(turn, obituary, cause);
}

void acquit_unexplained(Turn& turn) {
  std::vector<Obituary>& obituaries = turn.fleet.obituaries;
  while (!obituaries.empty() && turn.now - obituaries.front().at >= kCausePatience) {
    const Obituary oldest = obituaries.front();
    obituaries.erase(obituaries.begin());
    settle_cause(turn, oldest, std::nullopt);
  }
}

}  // namespace llorch::fleet
