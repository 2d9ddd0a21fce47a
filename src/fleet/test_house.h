// A fleet under a clock of its own whose effects are written down, for tests that drive it by hand.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fleet/decide.h"

namespace llorch::fleet {

inline constexpr ModelHash kModel{1, 1};
inline constexpr ModelHash kOther{2, 2};
inline constexpr UnixMs kWall = 1'700'000'000'000;

// Writes down everything it is asked for.
class Recorder final : public FleetEffects {
 public:
  void append(JobWrite write) override { writes.push_back(std::move(write)); }
  void open_attempt(const AttemptOrder& order) override { attempts.push_back(order); }
  void cut_attempt(const AttemptId& attempt) override { cuts.push_back(attempt); }
  void start_worker(const HostId& host, const LoadPlan& plan) override {
    loads.emplace_back(host, plan);
  }
  void stop_worker(const HostId&, const WorkerId& worker) override { stops.push_back(worker); }
  void step_host(const HostId&, HostAction action) override { steps.push_back(action); }
  void tell(const JobId&, const JobNotice& notice) override { notices.push_back(notice); }
  void answer(RequestId request, const Reply& reply) override { replies[request] = reply; }
  void keep(Bucket, const std::string& key, const std::string& value) override {
    kept[key] = value;
  }

  std::vector<JobWrite> writes;
  std::vector<AttemptOrder> attempts;
  std::vector<AttemptId> cuts;
  std::vector<std::pair<HostId, LoadPlan>> loads;
  std::vector<WorkerId> stops;
  std::vector<HostAction> steps;
  std::vector<JobNotice> notices;
  std::map<RequestId, Reply> replies;
  std::map<std::string, std::string> kept;
};

class House : public ::testing::Test {
 protected:
  explicit House(FleetLimits limits = {.jobs_max = 8, .prefix_entries = 64})
      : fleet(limits, /*the_boot=*/3) {
    feed(Tick{kWall});
  }

  void feed(const Event& event) { decide(fleet, event, now, out); }
  void pass(Millis time) {
    now += time;
    feed(Tick{wall()});
  }
  UnixMs wall() const { return kWall + std::chrono::duration_cast<Millis>(now - start).count(); }

  PoolSeen report(const HostId& host, std::vector<SeenWorker> workers) const {
    PoolSeen seen{.host = host, .workers = std::move(workers)};
    seen.devices = {{0, 100, 100 - 40 * static_cast<std::int64_t>(seen.workers.size()), 50e9}};
    for (const ModelHash& model : {kModel, kOther}) {
      seen.models.push_back({.model = model,
                             .name = "m",
                             .weight_bytes = 1'000'000'000,
                             .need_bytes = 40,
                             .context = 4096,
                             .devices = 1});
      seen.speeds.push_back(
          {.model = model, .prefill_tps = 1000, .decode_tps = {{1, 50}, {2, 45}}, .load_ms = 2000});
    }
    seen.disk_free_bytes = 1 << 30;
    return seen;
  }
  static SeenWorker worker(WorkerId id, std::uint32_t birth = 1, std::uint16_t slots = 2) {
    return {.id = std::move(id),
            .start = birth,
            .model = kModel,
            .slots = slots,
            .context = 4096,
            .bytes = 40,
            .exactness = 9};
  }
  void add_host(const HostId& host, std::vector<SeenWorker> workers) {
    feed(HostAsked{host, HostKind::Joined, HostWish::Up});
    feed(report(host, std::move(workers)));
  }

  JobId submit(SubmittedRecord facts = {}) {
    const JobId id{5, ++next_job};
    if (facts.model == ModelHash{}) facts.model = kModel;
    facts.model_name = "m";
    facts.submitted_ms = wall();
    facts.prompt_tokens = 10;
    if (facts.max_tokens == 0) facts.max_tokens = 100;
    feed(Submitted{.request = next_job, .job = id, .facts = facts});
    return id;
  }
  // The store takes everything that was written so far.
  void sync(WriteOutcome outcome = WriteOutcome::Durable) {
    const std::vector<JobWrite> writes = std::exchange(out.writes, {});
    for (const JobWrite& write : writes) {
      if (outcome == WriteOutcome::Durable) stored[write.job].push_back(write.record);
      feed(Written{write.job, write.expected_seq, outcome});
    }
  }
  JobId submit_task(SubmittedRecord facts = {}) {
    const JobId id = submit(std::move(facts));
    sync();
    return id;
  }
  const Job& job(const JobId& id) const {
    const Job* found = find_job(fleet, id);
    EXPECT_NE(found, nullptr);
    return *found;
  }
  Phase phase(const JobId& id) const { return job(id).phase; }
  bool is_live(const JobId& id) const { return find_job(fleet, id) != nullptr; }
  void end_attempt(AttemptEnd end, std::uint64_t told = 0, std::optional<LossCause> cause = {}) {
    feed(AttemptEnded{.attempt = out.attempts.back().attempt,
                      .end = end,
                      .code = ErrorCode::InvalidArgument,
                      .message = "why",
                      .stop_reason = "eos",
                      .cause = cause,
                      .told = told});
  }
  void begin_attempt() { feed(AttemptStarted{out.attempts.back().attempt, 10, 0}); }
  const EndedRecord& told_end() const {
    EXPECT_FALSE(out.notices.empty());
    EXPECT_EQ(out.notices.back().kind, NoticeKind::Ended);
    return out.notices.back().end;
  }

  TimePoint start{std::chrono::hours(10)};
  TimePoint now = start;
  Fleet fleet;
  Recorder out;
  std::uint64_t next_job = 0;
  std::map<JobId, std::vector<Record>> stored;
};

}  // namespace llorch::fleet
