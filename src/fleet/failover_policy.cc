#include "fleet/failover_policy.h"

#include <algorithm>
#include <array>

namespace llorch::fleet {
namespace {

constexpr std::uint8_t kFailuresMax = 3;
constexpr std::chrono::seconds kWindow{30};
constexpr Millis kFirstPause{5000};
constexpr Millis kLongestPause{300'000};

constexpr std::array<std::string_view, 6> kVerdicts = {
    "move", "await_cause", "poison", "too_many_moves", "too_late", "cannot_resume"};

}  // namespace

std::string_view name(LossVerdict verdict) {
  return kVerdicts[static_cast<std::size_t>(verdict)];
}

bool can_be_its_doing(LossCause cause) {
  return cause == LossCause::Crash || cause == LossCause::OutOfMemory || cause == LossCause::Hang;
}

void note_loss(Suspicion& suspicion, std::optional<LossCause> cause, std::uint64_t told) {
  if (cause && !can_be_its_doing(*cause)) return;
  suspicion.died_at = told;
  if (suspicion.pending < kMovesMax) ++suspicion.pending;
  if (cause) note_cause(suspicion, cause);
}

void note_cause(Suspicion& suspicion, std::optional<LossCause> cause) {
  if (suspicion.pending == 0) return;
  --suspicion.pending;
  if (cause && can_be_its_doing(*cause) && suspicion.kills < kKillsMax) ++suspicion.kills;
}

void note_told(Suspicion& suspicion, std::uint64_t told) {
  if (suspicion.is_suspect() && told >= suspicion.died_at + kTokensThatClear)
    suspicion = Suspicion{};
}

LossVerdict judge_loss(const LossFacts& facts) {
  if (facts.suspicion.kills >= kKillsMax) return LossVerdict::Poison;
  const int kills_at_most = facts.suspicion.kills + facts.suspicion.pending;
  if (facts.suspicion.pending > 0 && kills_at_most >= kKillsMax) return LossVerdict::AwaitCause;
  if (facts.moves >= kMovesMax) return LossVerdict::TooManyMoves;
  if (facts.has_told && !facts.can_resume) return LossVerdict::CannotResume;
  if (facts.remaining_ms < facts.replay_ms) return LossVerdict::TooLate;
  return LossVerdict::Move;
}

bool Breaker::lets_in(TimePoint now) const {
  return pause_.count() == 0 || (now >= closed_until_ && !trial_runs_);
}

void Breaker::note_start(TimePoint now) {
  if (pause_.count() > 0 && now >= closed_until_) trial_runs_ = true;
}

void Breaker::note_failure(TimePoint now) {
  if (pause_.count() > 0) {
    if (now < closed_until_) return;  // others that were under way when it closed
    pause_ = std::min(kLongestPause, 2 * pause_);
  } else {
    if (now - window_start_ > kWindow) {
      window_start_ = now;
      failures_ = 0;
    }
    if (++failures_ < kFailuresMax) return;
    pause_ = kFirstPause;
  }
  trial_runs_ = false;
  failures_ = 0;
  closed_until_ = now + pause_;
}

void Breaker::note_success() {
  *this = Breaker{};
}

void Breaker::note_gone() {
  trial_runs_ = false;
}

}  // namespace llorch::fleet
