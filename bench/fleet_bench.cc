// What the orchestrator's decisions cost: one placement against the number of workers, the life of
// a job against the number of hosts and of jobs in the queue, and events of the simulator.
//   fleet_bench                 everything, as tables
//   fleet_bench --json FILE     cost against size, for bench/plot_fleet.py
// Times are of the processor, not of the clock: other programs on the machine hardly matter.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <string_view>
#include <vector>

#include "fleet/decide.h"
#include "fleet/placement.h"
#include "fleet/simulator.h"

namespace llorch::fleet {
namespace {

// The processor's time of this thread.
struct Stopwatch {
  using time_point = std::chrono::nanoseconds;
  static time_point now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

double micros_since(Stopwatch::time_point start) {
  return std::chrono::duration<double, std::micro>(Stopwatch::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// --- one placement ---

std::vector<double> time_place(std::uint32_t workers) {
  Speeds speeds;
  Dice dice(1);
  std::vector<WorkerView> views;
  std::vector<DeviceView> devices;
  for (std::uint32_t i = 0; i < workers; ++i) {
    const SpeedIndex row = speeds.find_or_add(0, i, {});
    speeds.learn_decode(row, 1, 10 + dice() % 100);
    speeds.learn_prefill(row, 500 + dice() % 5000);
    views.push_back({.worker = i, .host = i, .speed = row, .slots = 8});
    views.back().busy = static_cast<std::uint16_t>(dice() % 8);
    devices.push_back({.device = i, .host = i, .speed = row, .load_ms = 5000});
  }
  const PrefixHit hits[] = {{1, 4}, {5, 2}, {7, 1}};
  const JobView job{
      .prompt_tokens = 300, .expected_output = 200, .tokens_per_block = 64, .hits = hits};
  ScoreSheet sheet;
  std::vector<double> times;
  for (int i = 0; i < 400; ++i) {
    const auto start = Stopwatch::now();
    place({.workers = views, .devices = devices, .speeds = &speeds, .now = TimePoint{}}, job,
          sheet);
    times.push_back(micros_since(start));
  }
  return times;
}

void measure_place(std::uint32_t workers) {
  std::vector<double> times = time_place(workers);
  std::sort(times.begin(), times.end());
  std::printf("%8u %10.1f %10.1f\n", workers, times[times.size() / 2],
              times[times.size() * 99 / 100]);
}

// --- the life of many jobs ---

// Everything works at once; attempts wait in a list until they are ended.
class QuickWorld final : public FleetEffects {
 public:
  void append(JobWrite write) override { written.push_back({write.job, write.expected_seq}); }
  void open_attempt(const AttemptOrder& order) override { open.push_back(order.attempt); }
  void cut_attempt(const AttemptId&) override {}
  void start_worker(const HostId&, const LoadPlan&) override {}
  void stop_worker(const HostId&, const WorkerId&) override {}
  void step_host(const HostId&, HostAction) override {}
  void tell(const JobId&, const JobNotice& notice) override {
    ended += notice.kind == NoticeKind::Ended ? 1U : 0U;
  }
  void answer(RequestId, const Reply& reply) override { refused += reply.status.ok() ? 0U : 1U; }
  void keep(Bucket, const std::string&, const std::string&) override {}

  std::deque<Written> written;
  std::deque<AttemptId> open;
  std::size_t ended = 0;
  std::size_t refused = 0;
};

void report_hosts(Fleet& fleet, QuickWorld& world, std::uint32_t hosts, TimePoint now) {
  for (std::uint32_t i = 0; i < hosts; ++i) {
    PoolSeen seen{.host = "host" + std::to_string(i), .devices = {{0, 1 << 30, 1 << 29, 100e9}}};
    seen.models.push_back({.model = {1, 1},
                           .name = "m",
                           .weight_bytes = 1000000000,
                           .need_bytes = 1 << 30,
                           .context = 4096,
                           .devices = 1});
    seen.workers.push_back(
        {.id = "worker", .start = 1, .model = {1, 1}, .slots = 8, .context = 4096});
    seen.speeds.push_back({.model = {1, 1}, .prefill_tps = 1000, .decode_tps = {{1, 50}, {8, 30}}});
    decide(fleet, seen, now, world);
  }
}

void add_hosts(Fleet& fleet, QuickWorld& world, std::uint32_t hosts, TimePoint now) {
  for (std::uint32_t i = 0; i < hosts; ++i)
    decide(fleet, HostAsked{"host" + std::to_string(i), HostKind::Joined, HostWish::Up}, now,
           world);
  report_hosts(fleet, world, hosts, now);
}

void settle_writes(Fleet& fleet, QuickWorld& world, TimePoint now) {
  while (!world.written.empty()) {
    const Written written = world.written.front();
    world.written.pop_front();
    decide(fleet, written, now, world);
  }
}

Submitted make_job(std::uint32_t number, std::uint32_t keys) {
  return Submitted{.request = 1,
                   .job = {9, number},
                   .facts = {.key = {number % keys},
                             .model = {1, 1},
                             .model_name = "m",
                             .submitted_ms = 1,
                             .prompt_tokens = 100,
                             .max_tokens = 100}};
}

AttemptEnded make_end(const AttemptId& attempt) {
  return AttemptEnded{.attempt = attempt,
                      .told = 50,
                      .prompt_tokens = 100,
                      .new_tokens = 50,
                      .prefill_ms = 100,
                      .decode_ms = 1000};
}

// A house whose slots are all busy, and a queue that is brought to any length.
class BusyHouse {
 public:
  explicit BusyHouse(std::uint32_t hosts)
      : fleet_({.jobs_max = 10'000'000, .body_bytes_max = std::int64_t{1} << 50}), hosts_(hosts) {
    decide(fleet_, Tick{kWallMs}, now_, world_);
    add_hosts(fleet_, world_, hosts, now_);
    while (world_.open.size() == jobs_) submit();  // the last one waits
  }

  // Nobody is silent for long.
  void hear_hosts() { report_hosts(fleet_, world_, hosts_, now_); }
  std::size_t queued() const { return jobs_ - world_.open.size() - world_.ended; }

  double submit() {
    const auto start = Stopwatch::now();
    decide(fleet_, make_job(jobs_++, kKeys), now_, world_);
    settle_writes(fleet_, world_, now_);
    return micros_since(start);
  }
  // A running job ends: another one takes its place.
  double serve() {
    now_ += Millis(1);
    const AttemptId attempt = world_.open.front();
    world_.open.pop_front();
    const auto start = Stopwatch::now();
    decide(fleet_, make_end(attempt), now_, world_);
    settle_writes(fleet_, world_, now_);
    return micros_since(start);
  }
  // What comes once a second, with all that is due by then.
  double pass() {
    now_ += Millis(1000);
    const auto start = Stopwatch::now();
    decide(fleet_, Tick{kWallMs}, now_, world_);
    return micros_since(start);
  }

 private:
  static constexpr std::uint32_t kKeys = 100;
  static constexpr std::int64_t kWallMs = 1'700'000'000'000;
  Fleet fleet_;
  QuickWorld world_;
  const std::uint32_t hosts_;
  TimePoint now_{std::chrono::hours(1)};
  std::uint32_t jobs_ = 0;
};

struct SizeCost {
  double submit_us = 0;
  double serve_us = 0;
  double pass_us = 0;
};

// With so many jobs in the queue; medians.
SizeCost measure_at(BusyHouse& house, std::size_t queued) {
  constexpr int kTimes = 101;
  while (house.queued() < queued) house.submit();
  house.hear_hosts();
  std::vector<double> submit;
  std::vector<double> serve;
  std::vector<double> pass;
  for (int i = 0; i < kTimes; ++i) {
    serve.push_back(house.serve());
    submit.push_back(house.submit());
    if (i % 10 == 0) pass.push_back(house.pass());
  }
  return {median(submit), median(serve), median(pass)};
}

int write_costs(const char* path) {
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) return 1;
  const auto write = [file](const char* name, std::uint32_t size, const SizeCost& cost) {
    std::fprintf(file, "%s{\"%s\":%u,\"submit_us\":%.3f,\"serve_us\":%.3f,\"pass_us\":%.3f}",
                 size == 1 ? "" : ",", name, size, cost.submit_us, cost.serve_us, cost.pass_us);
  };
  std::fprintf(file, "{\"placement\":[");
  for (const std::uint32_t workers : {1U, 3U, 10U, 30U, 100U, 300U, 1000U, 3000U, 10000U})
    std::fprintf(file, "%s{\"workers\":%u,\"us\":%.3f}", workers == 1 ? "" : ",", workers,
                 median(time_place(workers)));
  std::fprintf(file, "],\"queued\":[");
  BusyHouse house(1000);
  for (const std::uint32_t jobs : {1U, 10U, 100U, 300U, 1000U, 3000U, 10000U, 30000U, 100000U})
    write("jobs", jobs, measure_at(house, jobs));
  std::fprintf(file, "],\"hosts\":[");
  for (const std::uint32_t hosts : {1U, 3U, 10U, 30U, 100U, 300U, 1000U}) {
    BusyHouse one(hosts);
    write("hosts", hosts, measure_at(one, 100000));
  }
  std::fprintf(file, "]}\n");
  return std::fclose(file) == 0 ? 0 : 1;
}

void measure_lives(std::uint32_t hosts, std::uint32_t jobs, std::uint32_t keys) {
  Fleet fleet({.jobs_max = 10'000'000, .body_bytes_max = std::int64_t{1} << 50});
  QuickWorld world;
  TimePoint now{std::chrono::hours(1)};
  decide(fleet, Tick{1'700'000'000'000}, now, world);
  add_hosts(fleet, world, hosts, now);
  const auto start = Stopwatch::now();
  for (std::uint32_t i = 0; i < jobs; ++i) {
    decide(fleet, make_job(i, keys), now, world);
    settle_writes(fleet, world, now);
  }
  const double submit_us = micros_since(start) / jobs;
  const auto drain = Stopwatch::now();
  while (!world.open.empty()) {
    now += Millis(1);
    const AttemptId attempt = world.open.front();
    world.open.pop_front();
    decide(fleet, make_end(attempt), now, world);
    settle_writes(fleet, world, now);
  }
  const double drain_us = micros_since(drain) / jobs;
  const auto tick = Stopwatch::now();
  decide(fleet, Tick{1'700'000'000'000}, now, world);
  std::printf("%8u %8u %8u %12.2f %12.2f %12.1f%s\n", hosts, jobs, keys, submit_us, drain_us,
              micros_since(tick),
              world.ended == jobs && world.refused == 0 ? "" : "  NOT ALL ENDED");
}

void measure_simulator() {
  std::uint64_t events = 0;
  const auto start = Stopwatch::now();
  for (std::uint32_t seed = 1; seed <= 40; ++seed)
    events += Simulator({.seed = seed, .jobs = 500}).run().events;
  std::printf("%.0f events of the simulator in a second\n",
              1e6 * static_cast<double>(events) / micros_since(start));
}

}  // namespace
}  // namespace llorch::fleet

int main(int count, char** words) {
  using namespace llorch::fleet;
  if (count == 3 && std::string_view(words[1]) == "--json") return write_costs(words[2]);
  std::printf("one placement: workers (and as many devices), us p50, us p99\n");
  for (const std::uint32_t workers : {10U, 100U, 1000U, 10000U}) measure_place(workers);
  std::printf("\nthe life of a job: hosts, jobs, keys, us to submit, us to serve, us of a tick\n");
  for (const std::uint32_t jobs : {1000U, 10000U, 100000U}) measure_lives(10, jobs, 10);
  for (const std::uint32_t keys : {10U, 1000U, 100000U}) measure_lives(10, 100000, keys);
  for (const std::uint32_t hosts : {10U, 100U, 1000U}) measure_lives(hosts, 100000, 100);
  std::printf("\n");
  measure_simulator();
  return 0;
}
