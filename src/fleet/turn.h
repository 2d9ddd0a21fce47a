// Turn: what every decision has at hand. Private to the module.
#pragma once

#include <cstdint>
#include <vector>

#include "fleet/effects.h"
#include "fleet/eviction.h"
#include "fleet/fleet.h"

namespace llorch::fleet {

struct Turn {
  Fleet& fleet;
  TimePoint now;
  FleetEffects& effects;
};

// worker_table.cc: rows of workers, what pools say about them, hosts that come and go.
void apply_pool(Turn& turn, const PoolSeen& seen);
void end_load(Turn& turn, const LoadEnded& ended);
void advance_host(Turn& turn, HostIndex host);
// After anything about it changed: its view, and the slots of its model.
void refresh_view(Fleet& fleet, WorkerIndex worker, TimePoint now);
WorkerIndex add_worker(Fleet& fleet, Worker worker);
void release_slot(Fleet& fleet, WorkerIndex worker, JobIndex job, TimePoint now);

// device_views.cc: what a model finds on each device.
// At most once a second for each model: loads take longer than that anyway.
void refresh_devices(Fleet& fleet, ModelIndex model, TimePoint now);
std::vector<Tenant> tenants_of(const Fleet& fleet, DeviceIndex device, TimePoint now);
// As its pool saw it, less what was ordered since, and with what has been told to leave.
std::int64_t free_bytes(const Fleet& fleet, DeviceIndex device);
// The job has waited long enough for memory: of the device where it could be had first, the workers
// that are in its way take no more jobs for a moment.
void make_room(Turn& turn, const Job& job);

// dispatch.cc: from the front of a line to a worker.
void pump_model(Turn& turn, ModelIndex model);
void look_at_parked(Turn& turn);
LineIndex line_for(Fleet& fleet, ModelIndex model, HostIndex pin, std::uint64_t labels);
// Slot time, with so much of its answer told before.
double predict_cost_s(const Fleet& fleet, const Job& job, std::uint64_t told);

// eta.cc: a job that waits hears how long, or (`reason`) what it waits for beside its turn, where
// either has changed.
void tell_wait(Turn& turn, Job& job, const QueuePlace& place, const std::string& reason);

// job_policy.cc: the state machine of one job.
void submit(Turn& turn, const Submitted& event);
void note_written(Turn& turn, const Written& event);
void stop(Turn& turn, Job& job, StopCause cause, RequestId request);
void note_followers(Turn& turn, const FollowersChanged& event);
void note_due(Turn& turn, Job& job);
void fail(Turn& turn, Job& job, ErrorCode code, std::string message);
void complete(Turn& turn, Job& job, std::string stop_reason);
void finish_stopped(Turn& turn, Job& job);
void enter_queue(Turn& turn, Job& job);
void append(Turn& turn, Job& job, Record record, bool eager);
Job& add_job(Fleet& fleet, const JobId& id, SubmittedRecord facts);
void set_timer(Fleet& fleet, const Job& job, TimePoint at);

// attempt_policy.cc: one try on one worker.
void dispatch(Turn& turn, Job& job, const Decision& decision);
void note_started(Turn& turn, const AttemptStarted& event);
void note_progress(Turn& turn, const Progress& event);
void end_attempt(Turn& turn, const AttemptEnded& event);
void explain_death(Turn& turn, std::uint64_t life, std::optional<LossCause> cause);
void acquit_unexplained(Turn& turn);
void cut(Turn& turn, Job& job, LossCause cause);

}  // namespace llorch::fleet
