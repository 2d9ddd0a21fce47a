// Simulator: the real decide() in a world of chance. A virtual clock, workers that die, links that
// break, reports that come late, twice or in the wrong order, writes that fail, and crashes of the
// orchestrator after any effect, from which it recovers by what is durable. Every promise is
// checked on the way; the first one that is broken ends the run. The same seed gives the same run.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "fleet/decide.h"
#include "fleet/dice.h"
#include "fleet/naive_fleet.h"

namespace llorch::fleet {

inline constexpr std::size_t kSimHosts = 3;
inline ModelHash sim_model(std::size_t model) {
  return {7, model + 1};
}

struct SimOptions {
  std::uint32_t seed = 1;
  std::uint32_t jobs = 200;  // clients' submissions; a run is shortened by fewer
  bool has_faults = true;
  bool has_crashes = true;
  bool has_upgrades = false;  // with faults: hosts get other versions while they work
};

struct SimResult {
  std::string broken;  // empty: every promise was kept
  std::uint64_t events = 0;
  std::uint32_t crashes = 0;
  FleetCounters counters;  // of the last boot
  std::map<JobState, std::uint32_t> ends;
  std::uint32_t refused = 0;
};

class Simulator final : public FleetEffects {
 public:
  explicit Simulator(SimOptions options);
  SimResult run();

  void append(JobWrite write) override;
  void open_attempt(const AttemptOrder& order) override;
  void cut_attempt(const AttemptId& attempt) override;
  void start_worker(const HostId& host, const LoadPlan& plan) override;
  void stop_worker(const HostId& host, const WorkerId& worker) override;
  void step_host(const HostId& host, HostAction action) override;
  void tell(const JobId& job, const JobNotice& notice) override;
  void answer(RequestId request, const Reply& reply) override;
  void keep(Bucket bucket, const std::string& key, const std::string& value) override;

 private:
  // What a job will do to whoever runs it.
  enum class Nature : std::uint8_t { Good, Bad, Poison };
  struct SimJob {
    JobId id;
    SubmittedRecord facts;
    Nature nature = Nature::Good;
    std::uint32_t length = 0;  // ids of its answer
    std::uint32_t told = 0;    // ids in the log
    std::uint32_t stored = 0;
    std::uint32_t killed = 0;     // workers
    std::vector<Record> records;  // durable
    bool was_promised = false;
    std::optional<EndedRecord> end;  // as it was told
    // Its live attempt, if any.
    AttemptId attempt;
    bool is_open = false;
    std::uint32_t began_at = 0;  // told then
    std::size_t host = 0;
    WorkerId worker;
    std::uint32_t start = 0;
  };
  struct SimWorker {
    WorkerId id;
    std::uint32_t start = 0;
    std::size_t model = 0;
    std::uint32_t slots = 2;
    std::uint32_t busy = 0;
    bool is_dead = false;
    TimePoint died_at{};
    std::optional<LossCause> cause;  // none: it lives, or was stopped
  };
  struct SimHost {
    HostId id;
    bool has_link = true;
    bool is_up = false;
    std::uint64_t revision = 0;
    std::vector<SimWorker> workers;
  };
  // Something of the world that happens at its time, unless the orchestrator has crashed since.
  struct Due {
    TimePoint at{};
    std::uint64_t order = 0;
    std::uint32_t what = 0;  // index into pending_
    bool operator<(const Due& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  enum class Kind : std::uint8_t { Deliver, Commit, Submit, Report, Fault, End, Stop };
  struct Pending {
    Kind kind = Kind::Deliver;
    Boot boot = 0;  // 0: survives a crash
    Event event;
    JobId job;
    std::size_t host = 0;
  };

  void schedule(Millis after, Pending pending);
  void send(Millis after, Event event);
  void feed(const Event& event);
  void perform(Pending& pending);
  void crash();
  void submit_one();
  void commit();
  void report(std::size_t host);
  void break_something();
  void end_naturally(const JobId& id, const AttemptId& attempt);
  void close_attempt(SimJob& job, AttemptEnded end);
  void kill_worker(SimHost& host, SimWorker& worker, LossCause cause);
  void cut_streams(const SimHost& host);
  void stop_it(SimWorker& worker) const {
    worker.is_dead = true;
    worker.died_at = now_;
  }
  SimWorker* find_worker(std::size_t host, const WorkerId& id, std::uint32_t start);
  PoolSeen make_report(SimHost& host);
  void broke(std::string what);
  bool is_done() const;
  void check_at_end();
  Millis some(std::uint32_t least, std::uint32_t most) {
    return Millis(least + dice_() % (most - least + 1));
  }

  const SimOptions options_;
  Dice dice_;
  TimePoint now_{std::chrono::hours(1)};
  std::unique_ptr<Fleet> fleet_;
  NaiveFleet naive_;
  std::priority_queue<Due> due_;
  std::vector<Pending> pending_;
  std::vector<std::uint32_t> free_pending_;
  std::uint64_t next_order_ = 0;
  std::unordered_map<JobId, SimJob, JobIdHash> jobs_;
  std::vector<JobId> job_ids_;
  std::vector<SimHost> hosts_;
  std::vector<JobWrite> writes_;
  bool commit_is_due_ = false;
  std::uint32_t submitted_ = 0;
  std::uint32_t next_start_ = 1;
  std::uint32_t live_ = 0;  // promised and not ended
  std::uint64_t effects_until_crash_ = ~std::uint64_t{0};
  bool has_crashed_ = false;  // the rest of this decision is lost
  bool has_quiet_ = false;    // no more faults
  SimResult result_;
};

// Runs, and where a promise was broken shortens the run as far as it still breaks. The text says
// how to run it again.
SimResult simulate(SimOptions options);

}  // namespace llorch::fleet
