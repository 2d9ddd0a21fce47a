// NaiveFleet: what must become of each job, worked out from the events alone in the most obvious
// way: no queue, no placement, no timers. The simulator compares every end that is told with it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "fleet/effects.h"
#include "fleet/events.h"
#include "fleet/records.h"

namespace llorch::fleet {

class NaiveFleet {
 public:
  void note_event(const Event& event, TimePoint now) {
    if (const auto* submitted = std::get_if<Submitted>(&event)) {
      jobs_.try_emplace(submitted->job, NaiveJob{.holder = submitted->facts.holder,
                                                 .deadline_ms = submitted->facts.deadline_ms});
    } else if (const auto* asked = std::get_if<StopAsked>(&event)) {
      note_stop(asked->job);
    } else if (const auto* written = std::get_if<Written>(&event)) {
      note_written(*written, now);
    } else if (const auto* followers = std::get_if<FollowersChanged>(&event)) {
      note_followers(*followers, now);
    } else if (const auto* ended = std::get_if<AttemptEnded>(&event)) {
      note_attempt_end(*ended);
    } else if (const auto* tick = std::get_if<Tick>(&event)) {
      tick_ = now;
      tick_wall_ms_ = tick->wall_ms;
    }
  }
  void note_attempt(const AttemptId& attempt) { jobs_[attempt.job].attempt = attempt; }
  // The orchestrator has crashed: attempts are forgotten, connections are cut, what was asked and
  // not written is forgotten too.
  void note_crash(TimePoint now) {
    for (auto& [id, job] : jobs_) {
      settle(job);
      job.attempt.reset();
      job.must_end.reset();
      job.may_stop |= job.is_stopped || job.is_late;
      job.is_stopped = job.holder == Holder::Connection;
      if (job.holder == Holder::Followed) job.gone_at = now + Millis(30'000);
    }
  }

  // Empty when this end may be told; else what is wrong with it.
  std::string judge(const JobId& id, const EndedRecord& end) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return "an end of a job that nobody submitted";
    NaiveJob& job = found->second;
    settle(job);
    if (job.must_end && *job.must_end != end.state) {
      return "expected " + std::string(name(*job.must_end)) + ", told " +
             std::string(name(end.state)) + ": " + end.message;
    }
    if (end.state == JobState::Completed && !job.must_end && !job.may_stop)
      return "completed without a completed attempt";
    if (end.state == JobState::Cancelled && !job.is_stopped && !job.may_stop &&
        job.holder == Holder::Detached)
      return "cancelled although nobody asked: " + end.message;
    return {};
  }

 private:
  struct NaiveJob {
    Holder holder = Holder::Detached;
    UnixMs deadline_ms = 0;
    std::uint32_t followers = 0;
    TimePoint gone_at = TimePoint::max();  // when nobody may follow it any more
    std::optional<AttemptId> attempt;      // live
    std::optional<JobState> must_end;      // decided
    bool is_stopped = false;               // somebody wanted it, or nobody followed it
    bool is_late = false;
    bool may_stop = false;  // was asked before a crash: written or not
  };

  // What the newest tick has ended.
  void settle(NaiveJob& job) const {
    if (job.must_end) return;
    if (tick_ >= job.gone_at) job.is_stopped = true;
    if (job.deadline_ms != 0 && tick_wall_ms_ >= job.deadline_ms) job.is_late = true;
  }
  void note_stop(const JobId& id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return;
    settle(found->second);
    if (!found->second.must_end && !found->second.is_late) found->second.is_stopped = true;
  }
  // Accepted: its client hears of it and has to come.
  void note_written(const Written& written, TimePoint now) {
    const auto found = jobs_.find(written.job);
    if (found == jobs_.end() || written.seq != 0) return;
    NaiveJob& job = found->second;
    const bool is_awaited = job.holder == Holder::Followed && job.followers == 0;
    if (is_awaited && written.outcome == WriteOutcome::Durable) job.gone_at = now + Millis(10'000);
  }
  void note_followers(const FollowersChanged& followers, TimePoint now) {
    const auto found = jobs_.find(followers.job);
    if (found == jobs_.end()) return;
    NaiveJob& job = found->second;
    settle(job);
    if (job.holder == Holder::Connection && followers.followers == 0) note_stop(followers.job);
    if (job.holder != Holder::Followed) return;
    job.followers = followers.followers;
    job.gone_at = followers.followers > 0 ? TimePoint::max() : now + Millis(10'000);
  }
  void note_attempt_end(const AttemptEnded& ended) {
    const auto found = jobs_.find(ended.attempt.job);
    if (found == jobs_.end() || found->second.attempt != ended.attempt) return;
    NaiveJob& job = found->second;
    settle(job);
    job.attempt.reset();
    if (job.may_stop || (job.is_stopped && job.is_late)) return;  // either may have been first
    if (job.is_stopped) {
      job.must_end = JobState::Cancelled;
    } else if (job.is_late) {
      job.must_end = JobState::Failed;
    } else if (ended.end == AttemptEnd::Completed) {
      job.must_end = JobState::Completed;
    } else if (ended.end == AttemptEnd::Failed) {
      job.must_end = JobState::Failed;
    }
  }

  TimePoint tick_{};
  UnixMs tick_wall_ms_ = 0;
  std::map<JobId, NaiveJob> jobs_;
};

}  // namespace llorch::fleet
