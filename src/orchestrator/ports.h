// What the owner's thread hands on: attempts to those who relay them, notices to those who keep the
// answers, steps to those who reach hosts. All three are called on the owner's thread, must not
// wait, and answer by events (Orchestrator::post).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fleet/effects.h"
#include "fleet/events.h"
#include "fleet/records.h"
#include "job_store/store.h"

namespace llorch::orchestrator {

using PostEvent = std::function<void(fleet::Event)>;

// A pool as it is reached now. The worker's own API is at <pool>/v2/workers/<worker>/api/….
struct PoolAddress {
  std::string url;    // "http://127.0.0.1:9200", or one of a unix socket (http/url.h)
  std::string token;  // may be empty

  friend bool operator==(const PoolAddress&, const PoolAddress&) = default;
};

// One try of a job on one worker.
struct AttemptRequest {
  fleet::AttemptOrder order;
  PoolAddress pool;
  fleet::SubmittedRecord facts;  // kind, seed, deadline, correlation id, choices
  // The request as the worker's endpoint takes it: for Execute without job_id, seed and resume, for
  // the others what the client sent.
  std::shared_ptr<const std::string> body;
};

class Attempts {
 public:
  virtual ~Attempts() = default;

  // → AttemptStarted at most once, Progress, AttemptEnded exactly once.
  virtual void open(AttemptRequest request) = 0;
  // Sends a cancel and waits a moment for its proof. An attempt that has ended is no matter.
  virtual void cut(const fleet::AttemptId& attempt) = 0;
};

class Answers {
 public:
  virtual ~Answers() = default;

  // A job that was submitted, before anything else is told of it; or one that is taken up again
  // after a start, whose answer is stored up to `stored`.
  virtual void open(const fleet::JobId& job, const fleet::SubmittedRecord& facts,
                    const fleet::Position& stored) = 0;
  // It was refused: nobody was promised anything.
  virtual void drop(const fleet::JobId& job) = 0;
  virtual void tell(const fleet::JobId& job, const fleet::JobNotice& notice) = 0;
  // What became of groups given to Store::append_answer. On the store's thread.
  virtual void note_written(const std::vector<job_store::AnswerWritten>& answers) = 0;
};

// What ssh is for: preflight, installing, starting and stopping pools on other machines, tunnels.
class HostSteps {
 public:
  virtual ~HostSteps() = default;

  struct Outcome {
    fleet::HostStepOutcome step;
    PoolAddress pool;  // after Connect and Start: how its pool is reached from here
  };
  using OnEnd = std::function<void(Outcome)>;  // once, on any thread

  virtual void step(const fleet::HostId& host, fleet::HostAction action, OnEnd on_end) = 0;
};

}  // namespace llorch::orchestrator
