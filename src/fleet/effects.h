// FleetEffects: the only way out of the decisions. The real one hands on to other threads, tests
// record or simulate. Nothing here blocks or answers at once; answers are events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fleet/events.h"
#include "fleet/records.h"

namespace llorch::fleet {

// One try of a job on one worker. The request's body, and the ids told so far, are with whoever
// performs this.
struct AttemptOrder {
  AttemptId attempt;
  HostId host;
  WorkerId worker;
  bool resumes = false;    // from the ids told
  bool is_exact = true;    // the same arithmetic as the one that told them
  double lost_for_ms = 0;  // since the attempt before was lost; 0: it is the first
  HostId from_host;        // of the attempt before
  WorkerId from_worker;
};

struct LoadPlan {
  std::uint64_t load = 0;  // this order's number
  ModelHash model;
  std::string model_name;
  std::uint32_t device = 0;          // number on the host
  std::vector<WorkerId> first_stop;  // idle workers whose memory it needs
};

enum class NoticeKind : std::uint8_t { Queued, Loading, Migrated, Ended };
struct JobNotice {
  NoticeKind kind = NoticeKind::Queued;
  std::uint32_t position = 0;  // Queued
  double eta_ms = 0;           // Queued, Loading
  std::string reason;          // Queued: what it waits for, beside its turn; mostly nothing
  HostId host;                 // Loading; Migrated: to
  WorkerId worker;             // Migrated: to
  HostId from_host;
  WorkerId from_worker;
  std::uint64_t at_token = 0;
  double gap_ms = 0;
  bool is_exact = true;
  EndedRecord end;       // Ended
  std::string stage;     // Loading: "fetching", "loading"; empty: not known
  double progress = -1;  // Loading: 0..1 of that stage; below 0: not known
};

// The answer to a request: an error, or what became of its job.
struct Reply {
  JobId job;
  Status status = ok_status();
  double retry_after_ms = 0;  // with an error; 0: trying again is useless
  JobState state = JobState::Queued;
  std::uint32_t position = 0;
  double predicted_start_ms = 0;
  double stop_ms = 0;  // from StopAsked to the end
};

class FleetEffects {
 public:
  virtual ~FleetEffects() = default;

  virtual void append(JobWrite write) = 0;                   // → Written
  virtual void open_attempt(const AttemptOrder& order) = 0;  // → AttemptStarted, AttemptEnded
  virtual void cut_attempt(const AttemptId& attempt) = 0;    // → AttemptEnded, always
  virtual void start_worker(const HostId& host, const LoadPlan& plan) = 0;  // → LoadEnded, always
  virtual void stop_worker(const HostId& host, const WorkerId& worker) = 0;
  virtual void step_host(const HostId& host, HostAction action) = 0;  // → HostStepEnded, always
  virtual void tell(const JobId& job, const JobNotice& notice) = 0;
  virtual void answer(RequestId request, const Reply& reply) = 0;
  virtual void keep(Bucket bucket, const std::string& key, const std::string& value) = 0;
};

}  // namespace llorch::fleet
