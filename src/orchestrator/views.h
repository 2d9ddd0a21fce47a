// The fleet as its API shows it: pure functions from what is known to the bodies of the answers.
#pragma once

#include <functional>
#include <string>

#include "contract/fleet_api.h"
#include "fleet/decide.h"
#include "fleet/records.h"
#include "orchestrator/pools.h"

namespace llorch::orchestrator {

std::string time_text(fleet::UnixMs ms);  // RFC 3339; empty for 0
std::string events_url(const fleet::JobId& job);

// A job as its records tell it. Corrupt.
Result<contract::TaskView> view_of_records(const fleet::JobRecords& records);
// What only the owner knows of a live job: state, place in the queue, ids so far.
void add_live(const fleet::Fleet& fleet, const fleet::Job& job, fleet::TimePoint now,
              contract::TaskView& view);
// A live job that may not be stored yet.
contract::TaskView view_of_live(const fleet::Fleet& fleet, const fleet::Job& job,
                                fleet::TimePoint now);

contract::WhyView explain_job(const fleet::Fleet& fleet, const fleet::Job& job,
                              fleet::TimePoint now);
void add_dispatches(const fleet::JobRecords& records, contract::WhyView& view);

using FindDetails = std::function<const HostDetails*(const fleet::HostId&)>;
contract::HostList list_hosts(const fleet::Fleet& fleet, const FindDetails& details,
                              fleet::TimePoint now);
contract::FleetModelList list_models(const fleet::Fleet& fleet);
contract::FleetWorkerList list_workers(const fleet::Fleet& fleet, fleet::TimePoint now);
// Everything but version, uptime, keys and the audit log.
contract::FleetStatus make_status(const fleet::Fleet& fleet, const FindDetails& details,
                                  fleet::TimePoint now);

}  // namespace llorch::orchestrator
