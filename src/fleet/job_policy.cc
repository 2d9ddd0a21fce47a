// The state machine of one job, from its submission to its last record. README.md has its picture.
#include <algorithm>

#include "base/check.h"
#include "fleet/decide.h"
#include "fleet/turn.h"

namespace llorch::fleet {
namespace {

constexpr double kRetryMsMin = 1000;
constexpr double kRetryMsMax = 600'000;
constexpr Millis kRoomKept{30'000};  // for a key that is to come again, beyond the time it was told
// A job that takes longer than was thought: it is likely to take this part of its time once more.
constexpr double kOverdue = 0.25;
constexpr Millis kEndLook{250};  // between two looks at all running jobs, for those who are refused
constexpr Millis kWriteRetry{1000};

void enter(Job& job, Phase phase, TimePoint now) {
  job.phase = phase;
  job.phase_since = now;
}

// When one of the running jobs is likely to end, of one key where it is named.
TimePoint find_next_end(const Fleet& fleet, KeyIndex key, TimePoint now) {
  TimePoint soonest = TimePoint::max();
  for (const Worker& worker : fleet.workers) {
    for (const Worker::Running& run : worker.running) {
      const Job& job = fleet.jobs[run.job];
      if (key != kNone && job.key != key) continue;
      const double overdue_ms = kOverdue * millis_between(job.dispatched_at, now);
      soonest = std::min(soonest, std::max(run.predicted_end, after_millis(now, overdue_ms)));
    }
  }
  return soonest;
}

// How long until there is room for one more: a job ends, of this key where only that helps.
double retry_after_ms(Fleet& fleet, KeyIndex key, ModelIndex model, TimePoint now) {
  NextEnd& next = key == kNone ? fleet.next_end : fleet.keys[key].next_end;
  if (now - next.looked_at >= kEndLook) next = {now, find_next_end(fleet, key, now)};
  if (next.at != TimePoint::max())
    return std::clamp(millis_between(now, next.at), kRetryMsMin, kRetryMsMax);
  const Model& row = fleet.models[model];
  double cost_s = 0;
  std::size_t waiting = 0;
  for (const LineIndex line : row.lines) {
    cost_s += fleet.queue.cost_s(line);
    waiting += fleet.queue.waiting(line);
  }
  const double each_ms = waiting == 0 ? 0 : 1000 * cost_s / static_cast<double>(waiting);
  return std::clamp(each_ms / std::max(1U, row.slots), kRetryMsMin, kRetryMsMax);
}

struct Refused {
  Error error;
  double retry_after_ms = 0;
};

// Somebody else has jobs here, or was turned away a moment ago because there was no room.
bool has_rival(const Fleet& fleet, KeyIndex key, TimePoint now) {
  const bool is_awaited =
      fleet.room_wanted_by != kNone && fleet.room_wanted_by != key && now < fleet.room_wanted_until;
  return is_awaited || fleet.job_by_id.size() > fleet.keys[key].jobs;
}

// Whether there is room: for all, and for one key at most half of it while others want some.
std::optional<Refused> find_no_room(Fleet& fleet, KeyIndex index, ModelIndex model,
                                    std::int64_t bytes, TimePoint now) {
  const FleetLimits& limits = fleet.limits;
  const Key& key = fleet.keys[index];
  const bool has_half = key.jobs >= std::max<std::size_t>(1, limits.jobs_max / 2) ||
                        key.body_bytes + bytes > limits.body_bytes_max / 2;
  const bool is_full =
      fleet.job_by_id.size() >= limits.jobs_max || fleet.body_bytes + bytes > limits.body_bytes_max;
  if (is_full) {
    const double retry_ms = retry_after_ms(fleet, kNone, model, now);
    if (!has_half) {
      fleet.room_wanted_by = index;
      fleet.room_wanted_until = after_millis(now, retry_ms) + kRoomKept;
    }
    return Refused{{ErrorCode::QueueFull,
                    "the queue is full: " + std::to_string(fleet.job_by_id.size()) + " jobs, " +
                        std::to_string(fleet.body_bytes >> 20U) + " MiB; try again later"},
                   retry_ms};
  }
  if (has_half && has_rival(fleet, index, now)) {
    const std::string who = key.id.value == 0 ? "those without a key have " : "this key has ";
    return Refused{{ErrorCode::QueueFull,
                    who + std::to_string(key.jobs) +
                        " jobs here, half of what the queue holds, and others want room; "
                        "wait for some of them to end"},
                   retry_after_ms(fleet, index, model, now)};
  }
  return std::nullopt;
}

// Tokens of one sequence: of the workers that run the model, else of what hosts say about it.
std::uint32_t largest_context(const Fleet& fleet, ModelIndex index) {
  const Model& model = fleet.models[index];
  std::uint32_t largest = 0;
  for (const WorkerView& view : model.views) largest = std::max(largest, view.context);
  if (largest > 0) return largest;
  for (const HostIndex host : model.hosts) {
    const auto seen = fleet.hosts[host].models.find(index);
    if (seen != fleet.hosts[host].models.end()) largest = std::max(largest, seen->second.context);
  }
  return largest;
}

// What it may cost its key. An answer that asks for no end may fill the context.
std::int64_t tokens_at_most(const Fleet& fleet, const SubmittedRecord& facts, ModelIndex model) {
  const std::int64_t prompt = facts.prompt_tokens;
  if (facts.kind == JobKind::Embedding) return prompt;
  std::int64_t each = facts.max_tokens;
  if (each == 0) {
    const auto expected =
        static_cast<std::int64_t>(fleet.speeds.expected_output(facts.key, model, 0));
    each = std::max(expected, static_cast<std::int64_t>(largest_context(fleet, model)) - prompt);
  }
  return prompt + each * std::max(1U, facts.choices);
}

std::optional<Refused> find_refusal(Turn& turn, const SubmittedRecord& facts, ModelIndex model) {
  Fleet& fleet = turn.fleet;
  if (fleet.is_closing) {
    return Refused{{ErrorCode::Unavailable, "the orchestrator is being stopped; try again later"},
                   kRetryMsMin};
  }
  if (model == kNone) {
    return Refused{
        {ErrorCode::NotFound, "model '" + facts.model_name + "' is in no catalog of this fleet"}};
  }
  if (facts.mode == Mode::Pin && find_host(fleet, facts.pin_host) == kNone)
    return Refused{{ErrorCode::NotFound, "there is no host '" + facts.pin_host + "'"}};
  const UnixMs wall = wall_ms(fleet, turn.now);
  if (facts.deadline_ms != 0 && facts.deadline_ms <= wall)
    return Refused{{ErrorCode::DeadlineExceeded, "its deadline has passed"}};
  const KeyIndex index = find_or_add_key(fleet, facts.key);
  if (auto no_room = find_no_room(fleet, index, model, facts.body_bytes, turn.now)) return no_room;
  Key& key = fleet.keys[index];
  // Last, because it takes from the key's budget.
  auto refusal = admit(key.facts, key.usage, facts.model_name, tokens_at_most(fleet, facts, model),
                       wall, turn.now);
  if (refusal) return Refused{std::move(refusal->error), refusal->retry_after_ms};
  return std::nullopt;
}

void free_job(Fleet& fleet, Job& job) {
  CHECK(job.worker == kNone, "a job leaves after its attempt");
  const JobIndex index = index_of(fleet, job);
  CHECK(!fleet.queue.holds(index), "a job leaves the queue before it leaves");
  Key& key = fleet.keys[job.key];
  --key.jobs;
  key.body_bytes -= job.facts.body_bytes;
  fleet.body_bytes -= job.facts.body_bytes;
  fleet.job_by_id.erase(job.id);
  job = Job{};
  fleet.free_jobs.push_back(index);
}

void give_tokens_back(Turn& turn, Job& job, std::int64_t used) {
  Key& key = turn.fleet.keys[job.key];
  settle(key.usage, job.tokens_reserved, used, wall_ms(turn.fleet, turn.now));
  job.tokens_reserved = 0;
  if (!std::exchange(key.is_dirty, true)) turn.fleet.dirty_keys.push_back(job.key);
}

// Its end is durable, or needs not be: everybody hears of it.
void close(Turn& turn, Job& job) {
  CHECK(job.phase == Phase::Closing, "an end is told once, after it was written");
  turn.effects.tell(job.id, {.kind = NoticeKind::Ended, .end = job.end});
  for (const auto& [request, asked_at] : job.stop_requests) {
    turn.effects.answer(
        request,
        {.job = job.id, .state = job.end.state, .stop_ms = millis_between(asked_at, turn.now)});
  }
  free_job(turn.fleet, job);
}

void write_end(Turn& turn, Job& job) {
  job.end_seq = job.next_seq;
  append(turn, job, job.end, job.facts.holder != Holder::Connection);
}

// It computes no more, but its end is not stored: whoever asked for it shall not wait for the disk.
void refuse_stops(Turn& turn, Job& job) {
  for (const auto& [request, asked_at] : std::exchange(job.stop_requests, {})) {
    turn.effects.answer(
        request, {.job = job.id,
                  .status = Status(Error{ErrorCode::Unavailable,
                                         "it is stopped, but that could not be stored; it will be "
                                         "once the disk has room"}),
                  .retry_after_ms = kRetryMsMin});
  }
}

void finish(Turn& turn, Job& job, EndedRecord end) {
  CHECK(job.phase != Phase::Closing, "a job ends once");
  CHECK(job.worker == kNone, "a job ends after its attempt");
  Fleet& fleet = turn.fleet;
  const bool has_waited = job.phase == Phase::Queued || job.phase == Phase::Moving;
  if (has_waited && fleet.limits.keeps_why)
    end.why = sheet_text(fleet, explain(fleet, job.id, turn.now), job.facts.labels);
  fleet.queue.take(index_of(fleet, job));
  job.is_parked = false;
  end.prompt_tokens = job.prompt_tokens;
  end.tokens_out = static_cast<std::uint32_t>(job.told);
  end.attempts = job.attempts;
  end.device_ms = static_cast<std::int64_t>(job.device_ms);
  end.at_ms = wall_ms(fleet, turn.now);
  job.end = std::move(end);
  enter(job, Phase::Closing, turn.now);
  FleetCounters& counters = fleet.counters;
  ++(job.end.state == JobState::Completed ? counters.completed
     : job.end.state == JobState::Failed  ? counters.failed
                                          : counters.cancelled);
  give_tokens_back(turn, job, job.prompt_tokens + static_cast<std::int64_t>(job.told));
  write_end(turn, job);
  if (job.facts.holder == Holder::Connection) close(turn, job);
}

EndedRecord stopped_end(StopCause cause) {
  switch (cause) {
    case StopCause::Deadline:
      return {.state = JobState::Failed,
              .code = ErrorCode::DeadlineExceeded,
              .message = "its deadline passed before it was done"};
    case StopCause::FollowersGone:
      return {.state = JobState::Cancelled,
              .code = ErrorCode::Cancelled,
              .message = "nobody followed it any more"};
    case StopCause::KeyRevoked:
      return {.state = JobState::Cancelled,
              .code = ErrorCode::Cancelled,
              .message = "its key was revoked"};
    case StopCause::ShutDown:
      return {.state = JobState::Cancelled,
              .code = ErrorCode::Unavailable,
              .message = "the orchestrator was stopped while this was under way; send it again"};
    case StopCause::Asked:
      break;
  }
  return {.state = JobState::Cancelled, .code = ErrorCode::Cancelled, .message = "was cancelled"};
}

void await_follower(Turn& turn, Job& job) {
  job.unfollowed_since = turn.now;
  set_timer(turn.fleet, job, turn.now + job.follower_patience);
}

void accept(Turn& turn, Job& job) {
  CHECK(job.phase == Phase::Accepting, "a job is accepted once");
  const QueuePlace place = turn.fleet.queue.place_at_end(job.line, job.key, job.facts.cls);
  if (turn.fleet.models[job.model].slots == 0) refresh_devices(turn.fleet, job.model, turn.now);
  job.predicted_wait_ms = predict_wait_ms(turn.fleet, job, place.ahead_s, turn.now);
  if (job.submit_request != 0) {
    turn.effects.answer(
        job.submit_request,
        {.job = job.id, .position = place.position, .predicted_start_ms = job.predicted_wait_ms});
  }
  enter(job, Phase::Queued, turn.now);
  if (job.stop) {
    finish(turn, job, stopped_end(*job.stop));
    return;
  }
  turn.effects.tell(
      job.id,
      {.kind = NoticeKind::Queued, .position = place.position, .eta_ms = job.predicted_wait_ms});
  job.told_eta_ms = job.predicted_wait_ms;
  job.told_eta_at = turn.now;
  // Whoever asked for it has as long to follow it as one who was cut off has to come back.
  if (job.facts.holder == Holder::Followed && job.followers == 0) await_follower(turn, job);
  const ModelIndex model = job.model;
  enter_queue(turn, job);
  pump_model(turn, model);
}

// The store could not take its first record: nothing was promised, nobody has to remember it.
void drop(Turn& turn, Job& job, WriteOutcome outcome) {
  Status status =
      outcome == WriteOutcome::Conflict
          ? Status(Error{ErrorCode::Conflict,
                         "another request with this Idempotency-Key came at the same time"})
          : Status(Error{ErrorCode::Unavailable,
                         "the job could not be stored; the orchestrator's log says why (a full "
                         "disk, a store that was removed): mend that, then try again"});
  if (job.submit_request != 0) {
    turn.effects.answer(job.submit_request,
                        {.job = job.id, .status = status, .retry_after_ms = kRetryMsMin});
  }
  for (const auto& [request, asked_at] : job.stop_requests)
    turn.effects.answer(request, {.job = job.id, .status = status});
  give_tokens_back(turn, job, 0);
  free_job(turn.fleet, job);
}

}  // namespace

void append(Turn& turn, Job& job, Record record, bool eager) {
  if (!job.has_record) return;  // of a connection, and the disk was full: nothing to add to
  ++job.writes_open;
  turn.effects.append({.job = job.id,
                       .expected_seq = job.next_seq++,
                       .record = std::move(record),
                       .eager = eager,
                       .body = nullptr});
}

void set_timer(Fleet& fleet, const Job& job, TimePoint at) {
  fleet.timers.push({at, index_of(fleet, job), job.id});
}

Job& add_job(Fleet& fleet, const JobId& id, SubmittedRecord facts) {
  JobIndex index = static_cast<JobIndex>(fleet.jobs.size());
  if (fleet.free_jobs.empty()) {
    fleet.jobs.emplace_back();
  } else {
    index = fleet.free_jobs.back();
    fleet.free_jobs.pop_back();
  }
  CHECK(fleet.job_by_id.emplace(id, index).second, "a job is added once");
  Job& job = fleet.jobs[index];
  job.id = id;
  job.facts = std::move(facts);
  job.key = find_or_add_key(fleet, job.facts.key);
  job.model = find_or_add_model(fleet, job.facts.model);
  job.labels = needed_labels(fleet, job.facts.labels);
  if (job.facts.mode == Mode::Pin) job.pin = find_host(fleet, job.facts.pin_host);
  job.line = line_for(fleet, job.model, job.pin, job.labels);
  job.tokens_reserved = tokens_at_most(fleet, job.facts, job.model);
  job.cost_s = predict_cost_s(fleet, job, job.told);
  Key& key = fleet.keys[job.key];
  ++key.jobs;
  key.body_bytes += job.facts.body_bytes;
  fleet.body_bytes += job.facts.body_bytes;
  return job;
}

void enter_queue(Turn& turn, Job& job) {
  turn.fleet.queue.push({.job = index_of(turn.fleet, job),
                         .line = job.line,
                         .key = job.key,
                         .cls = job.facts.cls,
                         .cost_s = job.cost_s,
                         .submitted = job.submitted},
                        turn.now);
}

void submit(Turn& turn, const Submitted& event) {
  Fleet& fleet = turn.fleet;
  if (find_job(fleet, event.job) != nullptr) {
    ++fleet.counters.late_events;
    return;
  }
  const ModelIndex model = find_model(fleet, event.facts.model);
  auto refused = find_refusal(turn, event.facts, model);
  if (refused) {
    ++fleet.counters.refused;
    if (event.request != 0) {
      turn.effects.answer(event.request, {.job = event.job,
                                          .status = Status(std::move(refused->error)),
                                          .retry_after_ms = refused->retry_after_ms});
    }
    return;
  }
  ++fleet.counters.submitted;
  Job& job = add_job(fleet, event.job, event.facts);
  job.prefix = event.prefix;
  job.submit_request = event.request;
  job.submitted = turn.now;
  enter(job, Phase::Accepting, turn.now);
  job.prompt_tokens = job.facts.prompt_tokens;
  if (job.facts.deadline_ms != 0) {
    job.deadline = turn.now + Millis(job.facts.deadline_ms - wall_ms(fleet, turn.now));
    set_timer(fleet, job, job.deadline);
  }
  const bool waits_for_disk = job.facts.holder != Holder::Connection;
  append(turn, job, job.facts, waits_for_disk);
  if (!waits_for_disk) accept(turn, job);
}

void note_written(Turn& turn, const Written& event) {
  Job* job = find_job(turn.fleet, event.job);
  if (job == nullptr || job->writes_open == 0) return;  // held by a connection that is gone
  --job->writes_open;
  const bool is_stored = event.outcome == WriteOutcome::Durable;
  if (!is_stored) job->first_failed_seq = std::min(job->first_failed_seq, event.seq);
  if (job->phase == Phase::Accepting) {
    return is_stored ? accept(turn, *job) : drop(turn, *job, event.outcome);
  }
  // A conflict at the end although all before it is stored: the end is there, from a write that was
  // said to have failed.
  const bool is_there =
      event.outcome == WriteOutcome::Conflict && job->first_failed_seq == event.seq;
  const bool has_end = is_stored || is_there;
  if (job->phase == Phase::Closing && event.seq == job->end_seq && has_end)
    return close(turn, *job);
  if (job->first_failed_seq == 0) {
    job->has_record = false;
    return;
  }
  if (job->writes_open == 0 && job->first_failed_seq != kNone) {
    job->next_seq = std::exchange(job->first_failed_seq, kNone);
    if (job->phase == Phase::Closing) {
      job->end_seq = kNone;
      set_timer(turn.fleet, *job, turn.now + kWriteRetry);
      refuse_stops(turn, *job);
    }
  }
}

void stop(Turn& turn, Job& job, StopCause cause, RequestId request) {
  if (request != 0) job.stop_requests.emplace_back(request, turn.now);
  if (job.stop || job.phase == Phase::Closing) return;
  job.stop = cause;
  job.stop_at = turn.now;
  switch (job.phase) {
    case Phase::Accepting:  // ends as soon as it is accepted
    case Phase::Ending:
    case Phase::Closing:
      return;
    case Phase::Queued:
    case Phase::Moving: {
      EndedRecord end = stopped_end(cause);
      if (cause == StopCause::Deadline && job.attempts == 0) {
        std::string sheet =
            sheet_text(turn.fleet, explain(turn.fleet, job.id, turn.now), job.facts.labels);
        sheet.pop_back();  // one line, as errors are
        std::replace(sheet.begin(), sheet.end(), '\n', ',');
        end.message += ", and nobody took it: " + sheet;
      }
      finish(turn, job, std::move(end));
      return;
    }
    case Phase::Dispatched:
    case Phase::Running:
      enter(job, Phase::Ending, turn.now);
      append(turn, job, StopRecord{cause, wall_ms(turn.fleet, turn.now)},
             job.facts.holder != Holder::Connection);
      if (!std::exchange(job.is_cut, true))
        turn.effects.cut_attempt({job.id, turn.fleet.boot, job.attempts});
      return;
  }
}

void fail(Turn& turn, Job& job, ErrorCode code, std::string message) {
  finish(turn, job, {.state = JobState::Failed, .code = code, .message = std::move(message)});
}

void complete(Turn& turn, Job& job, std::string stop_reason) {
  finish(turn, job, {.state = JobState::Completed, .stop_reason = std::move(stop_reason)});
}

void finish_stopped(Turn& turn, Job& job) {
  CHECK(job.stop.has_value(), "it was told to stop");
  finish(turn, job, stopped_end(*job.stop));
}

void note_followers(Turn& turn, const FollowersChanged& event) {
  Job* job = find_job(turn.fleet, event.job);
  if (job == nullptr || event.change < job->followers_change) return;
  job->followers_change = event.change;
  job->followers = event.followers;
  job->follower_patience = kFollowerPatience;
  if (event.followers > 0) {
    job->unfollowed_since = TimePoint::max();
    return;
  }
  if (job->facts.holder == Holder::Connection) {
    stop(turn, *job, StopCause::FollowersGone, 0);
  } else if (job->facts.holder == Holder::Followed) {
    await_follower(turn, *job);
  }
}

void note_due(Turn& turn, Job& job) {
  if (job.phase == Phase::Closing) {
    if (job.end_seq == kNone && job.writes_open == 0) write_end(turn, job);
    return;
  }
  if (turn.now >= job.deadline) {
    stop(turn, job, StopCause::Deadline, 0);
  } else if (job.unfollowed_since != TimePoint::max() &&
             turn.now - job.unfollowed_since >= job.follower_patience) {
    stop(turn, job, StopCause::FollowersGone, 0);
  }
}

}  // namespace llorch::fleet
