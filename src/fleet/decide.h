// The orchestrator's decisions: an event goes in, the facts move on, effects come out.
#pragma once

#include "fleet/effects.h"
#include "fleet/events.h"
#include "fleet/fleet.h"
#include "fleet/placement.h"

namespace llorch::fleet {

// Deterministic: the same fleet, event and time give the same effects in the same order. Effects
// must not call back; their answers are later events.
void decide(Fleet& fleet, const Event& event, TimePoint now, FleetEffects& effects);

// How long a job that waits will wait, given the slot time of those before it.
double predict_wait_ms(const Fleet& fleet, const Job& job, double ahead_s, TimePoint now);

// Why a live job is or would be placed where: every candidate of now.
ScoreSheet explain(const Fleet& fleet, const JobId& job, TimePoint now);
// The sheet for people: the best candidates with their terms, the others by reason. `labels`: what
// the job asks of its host.
std::string sheet_text(const Fleet& fleet, const ScoreSheet& sheet,
                       const std::vector<std::string>& labels);
// A reason of the sheet, with the labels that the hosts lack.
std::string describe_refusal(const Fleet& fleet, const ScoreSheet& sheet, Refusal refusal,
                             const std::vector<std::string>& labels);
// The first few that were refused for this reason: "anna worker-cpu-0", "anna load on device 0".
std::vector<std::string> name_refused(const Fleet& fleet, const ScoreSheet& sheet, Refusal refusal);

// After a start, before the first event: begin, then every job that the store calls open, then
// every key's usage. Nothing is sent before each known host has answered, at most kRecoveryHold
// later. Corrupt: these are not the records of a job; it is left out.
void begin_recovery(Fleet& fleet, UnixMs wall_ms, TimePoint now);
// A stored job that completed: how long answers are, for jobs to come.
void learn_from_ended(Fleet& fleet, const JobRecords& records);
Status recover_job(Fleet& fleet, const JobRecords& records, TimePoint now, FleetEffects& effects);

}  // namespace llorch::fleet
