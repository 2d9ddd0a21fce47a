#include "pool/policy_life.h"

namespace llorch::pool {
namespace {

// One worker and a world that does anything at any time.
class RandomWorld {
 public:
  explicit RandomWorld(std::uint32_t seed) : random_(seed), life_(random_() % 2 == 0) {
    has_process_ = true;
  }

  void run() {
    for (int i = 0; i < 400; ++i) {
      life_.now += milliseconds(random_() % 5000);
      happen();
      perform(life_.step());
      check();
    }
    // Whatever was: a stop ends it, and once only.
    ask_stop(life_.facts);
    for (int i = 0; i < 100 && life_.facts.phase != Phase::Ended; ++i) {
      perform(life_.after(seconds(10)));
      if (killed_) leave();
      check();
    }
    EXPECT_EQ(life_.facts.phase, Phase::Ended) << name(life_.facts.phase);
    EXPECT_NE(life_.facts.category, ExitCategory::None);
    EXPECT_EQ(num_ends_, num_lives_) << "each life ends exactly once";
  }

 private:
  void leave() {
    if (!has_process_) return;
    has_process_ = false;
    EndFacts end;
    end.has_note = random_() % 4 != 0;
    end.code = static_cast<std::int32_t>(random_() % 3);
    end.signal = random_() % 2 == 0 ? 0 : SIGKILL;
    end.port_taken = random_() % 3 == 0;
    end.oom_kill = random_() % 3 == 0;
    life_.facts.end = end;
  }

  void happen() {
    switch (random_() % 14) {
      case 0:
        return leave();
      case 1:
        return note_ready(life_.facts);
      case 2:
        return ask_stop(life_.facts);
      case 3:
        if (life_.facts.phase == Phase::Ended && !life_.facts.restart_asked) ++num_lives_;
        if (life_.facts.phase == Phase::Ended) life_.facts.restart_asked = false;
        return ask_restart(life_.facts);
      case 4:
      case 5:
        if (life_.facts.probing && life_.facts.phase < Phase::Reclaiming)
          note_health(life_.facts, Error{ErrorCode::Unavailable, "no"}, life_.now);
        return;
      case 6:
        if (life_.facts.phase == Phase::Reclaiming && life_.facts.probing)
          note_memory(life_.facts, random_() % 2 == 0, life_.now);
        return;
      case 7:
        if (life_.facts.probing_token) note_token_probe(life_.facts, random_() % 4 == 0);
        return;
      case 8:
        if (life_.facts.phase == Phase::Planning && !life_.facts.end) {
          if (random_() % 3 == 0) return note_not_spawned(life_.facts, "does not fit");
          spawn();
        }
        return;
      default:
        if (life_.facts.probing && life_.facts.phase < Phase::Draining) {
          HealthAnswer answer;
          answer.report.status = contract::WorkerStatus::Healthy;
          answer.report.slots_busy = static_cast<std::int64_t>(random_() % 2);
          answer.report.last_token_age_ms = static_cast<std::int64_t>(random_() % 100'000);
          note_health(life_.facts, answer, life_.now);
        }
    }
  }

  void spawn() {
    EXPECT_FALSE(has_process_) << "two processes for one worker";
    has_process_ = true;
    killed_ = false;
    note_spawned(life_.facts, life_.now, life_.now + seconds(60));
  }

  void perform(const std::vector<Action>& actions) {
    for (const Action action : actions) {
      SCOPED_TRACE(name(action));
      switch (action) {
        case Action::SpawnAgain:
          spawn();
          break;
        case Action::Plan:
          EXPECT_FALSE(has_process_);
          break;
        case Action::Ended:
          EXPECT_FALSE(has_process_) << "ended while a process is there";
          ++num_ends_;
          break;
        case Action::CheckMemory:
          EXPECT_FALSE(has_process_);
          break;
        case Action::OrderKill:
        case Action::KillKeeper:
          killed_ = true;
          [[fallthrough]];
        default:
          EXPECT_TRUE(has_process_ || life_.facts.end) << "an action on a worker without a process";
      }
    }
  }

  void check() const {
    if (life_.facts.phase == Phase::Ended) {
      EXPECT_NE(life_.facts.category, ExitCategory::None);
      EXPECT_FALSE(life_.facts.reason.empty());
    }
    if (!life_.facts.end) {
      EXPECT_EQ(has_process_, has_process(life_.facts)) << name(life_.facts.phase);
    }
  }

  std::mt19937 random_;
  Life life_;
  bool has_process_ = false;
  bool killed_ = false;
  int num_lives_ = 1;
  int num_ends_ = 0;
};

TEST(WorkerPolicy, HoldsItsInvariantsWhateverHappens) {
  const std::uint32_t first = std::random_device()();
  for (std::uint32_t i = 0; i < 300; ++i) {
    SCOPED_TRACE(::testing::Message() << "seed " << first + i);
    RandomWorld(first + i).run();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace llorch::pool
