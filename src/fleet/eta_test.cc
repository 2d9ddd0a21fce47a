// Predicted against real starts: the real decide() in front of workers whose streams share their
// speed, under a virtual clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "fleet/decide.h"
#include "fleet/dice.h"

namespace llorch::fleet {
namespace {

constexpr ModelHash kEtaModel{4, 4};
constexpr UnixMs kWallStart = 1'700'000'000'000;

struct Shop {
  std::uint32_t workers = 2;
  std::uint16_t slots = 4;
  double alone_tps = 60;  // one stream
  double share = 0.8;     // of that, each time the streams double
  double prefill_tps = 2000;
  std::uint32_t prompt = 100;
  std::uint32_t output = 64;     // mean; between a quarter and seven quarters of it
  std::uint32_t max_tokens = 0;  // as clients say it; 0: nothing
  std::uint32_t keys = 1;
  std::uint32_t jobs = 400;
  std::uint32_t burst = 1;  // come at once
  double load = 1.1;        // of what the workers can do
  bool is_measured = true;  // the pool has said how fast it is
  bool has_prefill = true;  // and how fast it reads prompts, which short ones do not show
};

struct Told {
  double predicted_ms = 0;
  double actual_ms = 0;
};

class EtaWorld final : public FleetEffects {
 public:
  explicit EtaWorld(const Shop& shop, std::uint32_t seed) : shop_(shop), dice_(seed) {
    fleet_ = std::make_unique<Fleet>(FleetLimits{.jobs_max = 10'000, .prefix_entries = 64});
    workers_.resize(shop.workers);
    feed(Tick{kWallStart});
    feed(HostAsked{"a", HostKind::Joined, HostWish::Up});
    report();
  }

  void run() {
    TimePoint next_arrival = now_;
    TimePoint next_tick = now_;
    TimePoint next_report = now_;
    const double capacity = shop_.workers * shop_.slots * tps(shop_.slots) / shop_.output;
    while (ended_ < shop_.jobs) {
      TimePoint next = std::min(next_tick, next_report);
      if (submitted_ < shop_.jobs) next = std::min(next, next_arrival);
      next = std::min(next, next_end());
      advance(next);
      if (now_ >= next_arrival && submitted_ < shop_.jobs) {
        for (std::uint32_t i = 0; i < shop_.burst && submitted_ < shop_.jobs; ++i) submit();
        next_arrival =
            now_ + Millis(static_cast<std::int64_t>(-1000.0 * shop_.burst * std::log(chance()) /
                                                    (shop_.load * capacity)));
      }
      if (now_ >= next_tick) {
        feed(Tick{wall()});
        next_tick = now_ + Millis(250);
      }
      if (now_ >= next_report) {
        report();
        next_report = now_ + Millis(5000);
      }
    }
  }

  std::vector<Told> at_submit;  // predicted_start_ms, of jobs that had to wait
  std::vector<Told> later;      // eta_ms of `queued` events after the first

 private:
  struct Run {
    AttemptId attempt;
    double prefill_left_ms = 0;
    double left = 0;  // tokens
    std::uint32_t length = 0;
    TimePoint began{};
  };
  struct SimJob {
    double predicted_ms = 0;
    TimePoint submitted{};
    std::uint32_t length = 0;
    std::vector<std::pair<TimePoint, double>> told;
  };

  double tps(std::size_t streams) const {
    return shop_.alone_tps * std::pow(shop_.share, std::log2(std::max<std::size_t>(1, streams)));
  }
  double chance() { return (dice_() % 100'000 + 1) / 100'001.0; }
  UnixMs wall() const { return kWallStart + (now_ - start_).count() / 1'000'000; }
  void feed(const Event& event) {
    decide(*fleet_, event, now_, *this);
    while (!writes_.empty()) {
      const std::vector<JobWrite> writes = std::exchange(writes_, {});
      for (const JobWrite& write : writes)
        decide(*fleet_, Written{write.job, write.expected_seq, WriteOutcome::Durable}, now_, *this);
    }
    for (const AttemptId& attempt : std::exchange(opened_, {}))
      feed(AttemptStarted{attempt, shop_.prompt, 0});
  }

  void report() {
    PoolSeen seen{.host = "a", .revision = ++revision_};
    for (std::uint32_t i = 0; i < shop_.workers; ++i) {
      seen.devices.push_back({i, 100, 50, 50e9});
      seen.workers.push_back({.id = std::to_string(i),
                              .start = 1,
                              .model = kEtaModel,
                              .device = i,
                              .slots = shop_.slots,
                              .context = 4096,
                              .bytes = 50,
                              .exactness = 1});
      if (shop_.is_measured) {
        seen.speeds.push_back({.model = kEtaModel,
                               .device = i,
                               .prefill_tps = shop_.has_prefill ? shop_.prefill_tps : 0,
                               .decode_tps = {{1, tps(1)}, {2, tps(2)}, {4, tps(4)}},
                               .load_ms = 2000});
      }
    }
    seen.models.push_back({.model = kEtaModel,
                           .name = "m",
                           .weight_bytes = 500'000'000,
                           .need_bytes = 50,
                           .context = 4096,
                           .devices = 0});
    feed(seen);
  }

  void submit() {
    const JobId id{9, ++submitted_};
    const double spread = 0.25 + 1.5 * chance();
    SimJob& job = jobs_[id];
    job.submitted = now_;
    job.length = std::max(1U, static_cast<std::uint32_t>(spread * shop_.output));
    if (shop_.max_tokens > 0) job.length = std::min(job.length, shop_.max_tokens);
    feed(Submitted{.request = submitted_,
                   .job = id,
                   .facts = {.key = {1 + submitted_ % shop_.keys},
                             .holder = Holder::Followed,
                             .model = kEtaModel,
                             .model_name = "m",
                             .submitted_ms = wall(),
                             .prompt_tokens = shop_.prompt,
                             .max_tokens = shop_.max_tokens}});
    if (find_job(*fleet_, id) != nullptr) feed(FollowersChanged{id, 1});
  }

  // The time to its end at today's speed.
  double left_ms(const Run& run, std::size_t streams) const {
    return run.prefill_left_ms + 1000 * run.left / tps(streams);
  }
  TimePoint next_end() const {
    double soonest = 1e9;
    for (const std::vector<Run>& worker : workers_) {
      for (const Run& run : worker) soonest = std::min(soonest, left_ms(run, worker.size()));
    }
    return now_ + std::chrono::microseconds(static_cast<std::int64_t>(1000 * soonest) + 1);
  }
  void advance(TimePoint until) {
    const double ms = std::chrono::duration<double, std::milli>(until - now_).count();
    now_ = until;
    std::vector<Run> ended;
    for (std::vector<Run>& worker : workers_) {
      const double speed = tps(worker.size());
      for (Run& run : worker) {
        const double prefill = std::min(ms, run.prefill_left_ms);
        run.prefill_left_ms -= prefill;
        run.left -= (ms - prefill) * speed / 1000;
      }
      std::erase_if(worker, [&](const Run& run) {
        if (run.left > 1e-6) return false;
        ended.push_back(run);
        return true;
      });
    }
    for (const Run& run : ended) {
      ++ended_;
      const double slot_ms = std::chrono::duration<double, std::milli>(now_ - run.began).count();
      const double prefill_ms = 1000 * shop_.prompt / shop_.prefill_tps;
      feed(AttemptEnded{.attempt = run.attempt,
                        .stop_reason = "eos",
                        .told = run.length,
                        .prompt_tokens = shop_.prompt,
                        .new_tokens = run.length,
                        .prefill_ms = prefill_ms,
                        .decode_ms = slot_ms - prefill_ms});
    }
  }

  // FleetEffects
  void append(JobWrite write) override { writes_.push_back(std::move(write)); }
  void open_attempt(const AttemptOrder& order) override {
    SimJob& job = jobs_.at(order.attempt.job);
    const double waited_ms =
        std::chrono::duration<double, std::milli>(now_ - job.submitted).count();
    if (waited_ms > 500) at_submit.push_back({job.predicted_ms, waited_ms});
    for (const auto& [at, eta_ms] : job.told) {
      const double rest_ms = std::chrono::duration<double, std::milli>(now_ - at).count();
      if (rest_ms > 500) later.push_back({eta_ms, rest_ms});
    }
    workers_[std::stoul(order.worker)].push_back(
        {.attempt = order.attempt,
         .prefill_left_ms = 1000 * shop_.prompt / shop_.prefill_tps,
         .left = static_cast<double>(job.length),
         .length = job.length,
         .began = now_});
    opened_.push_back(order.attempt);
  }
  void cut_attempt(const AttemptId&) override {}
  void start_worker(const HostId&, const LoadPlan&) override {}
  void stop_worker(const HostId&, const WorkerId&) override {}
  void step_host(const HostId&, HostAction) override {}
  void tell(const JobId& id, const JobNotice& notice) override {
    if (notice.kind == NoticeKind::Queued && jobs_.at(id).submitted < now_)
      jobs_.at(id).told.emplace_back(now_, notice.eta_ms);
  }
  void answer(RequestId, const Reply& reply) override {
    jobs_.at(reply.job).predicted_ms = reply.predicted_start_ms;
    if (!reply.status.ok()) ++ended_;
  }
  void keep(Bucket, const std::string&, const std::string&) override {}

  const Shop shop_;
  Dice dice_;
  const TimePoint start_{std::chrono::hours(10)};
  TimePoint now_ = start_;
  std::unique_ptr<Fleet> fleet_;
  std::vector<std::vector<Run>> workers_;
  std::map<JobId, SimJob> jobs_;
  std::vector<JobWrite> writes_;
  std::vector<AttemptId> opened_;
  std::uint64_t revision_ = 0;
  std::uint32_t submitted_ = 0;
  std::uint32_t ended_ = 0;
};

// The middle one of predicted over actual.
double median_ratio(const std::vector<Told>& told) {
  std::vector<double> ratios;
  for (const Told& one : told) ratios.push_back(std::max(1.0, one.predicted_ms) / one.actual_ms);
  if (ratios.empty()) return 1;
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2),
                   ratios.end());
  return ratios[ratios.size() / 2];
}
// The middle factor by which a prediction is wrong, whichever way.
double median_error(const std::vector<Told>& told) {
  std::vector<double> errors;
  for (const Told& one : told)
    errors.push_back(std::exp(std::abs(std::log(std::max(1.0, one.predicted_ms) / one.actual_ms))));
  if (errors.empty()) return 1;
  std::nth_element(errors.begin(), errors.begin() + static_cast<std::ptrdiff_t>(errors.size() / 2),
                   errors.end());
  return errors[errors.size() / 2];
}

struct Case {
  const char* name;
  Shop shop;
  double limit = 1.5;
  bool knows_answers = true;  // when they are submitted: others like them have ended
};

class Eta : public ::testing::TestWithParam<Case> {};

TEST_P(Eta, IsWithinAHalfAtTheMedian) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    EtaWorld world(GetParam().shop, seed);
    world.run();
    ASSERT_GT(world.at_submit.size(), 50U) << "seed " << seed;
    if (GetParam().knows_answers) {
      EXPECT_LT(median_error(world.at_submit), GetParam().limit)
          << "predicted_start_ms, seed " << seed << ": the middle one is "
          << median_ratio(world.at_submit) << " times the real one";
    }
    EXPECT_LT(median_error(world.later), GetParam().limit)
        << "eta_ms of queued, seed " << seed << ": the middle one is " << median_ratio(world.later)
        << " times the real one";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shops, Eta,
    ::testing::Values(
        Case{"Steady", {}}, Case{"Bursts", {.burst = 40}},
        Case{"OneBurst", {.jobs = 300, .burst = 300}, 1.5, false},
        Case{"ShortAnswers", {.output = 20, .max_tokens = 512}},
        Case{"LongAnswers", {.output = 700, .jobs = 200}},
        Case{"BoundedAnswers", {.output = 100, .max_tokens = 64, .load = 2}},
        Case{"ManyKeys", {.keys = 40, .burst = 20}, 2} /* turns depend on who comes next */,
        Case{"ManySlots", {.workers = 1, .slots = 16, .burst = 60}},
        Case{"Guessed", {.is_measured = false}},
        Case{"ShortPrompts", {.prompt = 5, .has_prefill = false}},
        Case{"OneSlot", {.workers = 1, .slots = 1, .jobs = 150}}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace llorch::fleet
