// A house with everything in it, for tests.
#pragma once

#include <cstdint>
#include <string>

#include "contract/fleet_api.h"

namespace llorch::cli {

inline contract::FleetStatus sample_status() {
  contract::FleetStatus status;
  status.version = "1.2.3";
  status.uptime_seconds = 7500;
  status.queued = 3;
  status.running = 1;
  status.jobs_max = 10000;
  contract::HostView host;
  host.name = "local";
  host.kind = "local";
  host.state = "connected";
  host.since = "2026-01-01T00:00:00Z";
  host.devices = {
      {0, "AMD EPYC 7B13 with a long name", std::int64_t{8} << 30, std::int64_t{5} << 30},
      {1, "NVIDIA H200", std::int64_t{139} << 30, std::int64_t{9} << 30}};
  host.workers = 1;
  host.running = 1;
  status.hosts.push_back(host);
  host.name = "a-machine-with-a-rather-long-name.example";
  host.state = "gone";
  host.reason = "no route to host; is it switched on? It is tried again every minute";
  host.devices.clear();
  status.hosts.push_back(host);
  contract::FleetWorker worker;
  worker.id = "worker-cpu-0";
  worker.host = "local";
  worker.model = "a-model-with-a-long-name-q4_k_m";
  worker.state = "serving";
  worker.slots = 16;
  worker.busy = 1;
  worker.memory_bytes = 93 << 20;
  worker.decode_tps = 170.5;
  worker.prefill_tps = 1234.5;
  status.workers.push_back(worker);
  status.loads.push_back({"local", "llama-3.2-1b", "fetching", 0.42, 185'000});
  contract::TaskView task;
  task.job_id = "f3a97b1eda02da3eff58c3e5508b2ade";
  task.status = "running";
  task.kind = "execute";
  task.cls = "interactive";
  task.mode = "fast";
  task.model = worker.model;
  task.host = "local";
  task.worker = "worker-cpu-0";
  task.tokens_out = 42;
  task.submitted_at = "2026-01-01T00:00:00Z";
  status.tasks.push_back(task);
  status.audit_head = "0f1e2d";
  return status;
}

}  // namespace llorch::cli
