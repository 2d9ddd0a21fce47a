// What becomes of the jobs that were open when the orchestrator ended.
#include <algorithm>

#include "fleet/decide.h"
#include "fleet/job_fold.h"
#include "fleet/turn.h"

namespace llorch::fleet {

void begin_recovery(Fleet& fleet, UnixMs wall_ms, TimePoint now) {
  fleet.wall_offset_ms =
      wall_ms - std::chrono::duration_cast<Millis>(now.time_since_epoch()).count();
  fleet.hold_until = now + kRecoveryHold;
}

void learn_from_ended(Fleet& fleet, const JobRecords& records) {
  const Result<FoldedJob> folded = fold_job(records);
  if (!folded.ok() || !folded->end || folded->end->state != JobState::Completed) return;
  fleet.speeds.learn_output(folded->facts.key, find_or_add_model(fleet, folded->facts.model),
                            folded->end->tokens_out / std::max(1U, folded->facts.choices));
}

Status recover_job(Fleet& fleet, const JobRecords& records, TimePoint now, FleetEffects& effects) {
  const Result<FoldedJob> folded = fold_job(records);
  if (!folded.ok()) return folded.error();
  if (folded->end) return ok_status();
  Turn turn{fleet, now, effects};
  Job& job = add_job(fleet, folded->id, folded->facts);
  fleet.keys[job.key].usage.tokens_reserved += job.tokens_reserved;
  job.next_seq = folded->num_records;
  job.prompt_tokens = folded->prompt_tokens;
  job.told = folded->stored.total();
  // The attempt that was open counts neither as a kill nor as a move.
  job.suspicion.kills = folded->kills;
  job.suspicion.died_at = job.told;
  job.moves = folded->moves;
  job.phase = Phase::Queued;
  job.phase_since = now;
  const UnixMs wall = wall_ms(fleet, now);
  job.submitted = now - Millis(std::max<UnixMs>(0, wall - job.facts.submitted_ms));
  if (job.facts.deadline_ms != 0) job.deadline = now + Millis(job.facts.deadline_ms - wall);
  if (folded->stop || job.facts.holder == Holder::Connection) {
    job.stop = folded->stop.value_or(StopCause::FollowersGone);
    finish_stopped(turn, job);
    return ok_status();
  }
  if (job.deadline <= now) {
    job.stop = StopCause::Deadline;
    finish_stopped(turn, job);
    return ok_status();
  }
  if (job.deadline != TimePoint::max()) set_timer(fleet, job, job.deadline);
  if (job.told > 0) {
    // Clients may hold newer ids than the store; only the same arithmetic tells those again.
    job.exactness = folded->exactness;
    job.exact_until = now + kRecoveredPatience;
  }
  if (job.facts.holder == Holder::Followed) {
    job.unfollowed_since = now;
    job.follower_patience = kRecoveredPatience;
    set_timer(fleet, job, now + kRecoveredPatience);
  }
  enter_queue(turn, job);
  return ok_status();
}

}  // namespace llorch::fleet
