// What a lost attempt means: for its job (move on, wait for the cause, give up), for the worker
// (its breaker), and for the question which of the jobs on it was the one that killed it.
#pragma once

#include <cstdint>
#include <optional>

#include "fleet/handles.h"
#include "fleet/records.h"

namespace llorch::fleet {

inline constexpr std::uint8_t kKillsMax = 2;  // then it is not tried on another worker
inline constexpr std::uint8_t kMovesMax = 8;
inline constexpr std::uint64_t kTokensThatClear = 8;  // past the place where the worker died
// How long a job that is already under suspicion waits to hear what its worker died of.
inline constexpr Millis kCausePatience{5000};

// Whether a job is held to kill workers. One that was on a dead worker is a suspect until it gets
// past that place, or the cause turns out to be another.
struct Suspicion {
  std::uint8_t kills = 0;
  std::uint8_t pending = 0;   // losses whose cause is not known yet
  std::uint64_t died_at = 0;  // ids told then, over all choices

  bool is_suspect() const { return kills > 0 || pending > 0; }
};

// True for a death that a request can cause. Host and link never count.
bool can_be_its_doing(LossCause cause);

void note_loss(Suspicion& suspicion, std::optional<LossCause> cause, std::uint64_t told);
// The cause of one that is pending; none: nobody will ever know, which acquits it.
void note_cause(Suspicion& suspicion, std::optional<LossCause> cause);
void note_told(Suspicion& suspicion, std::uint64_t told);

enum class LossVerdict : std::uint8_t {
  Move,        // to another worker, from the ids told
  AwaitCause,  // it may be the second worker it killed: not on a third before that is known
  Poison,      // it killed kKillsMax workers
  TooManyMoves,
  TooLate,       // not even its prompt would be read again before the deadline
  CannotResume,  // something was told, and it cannot go on from there
};
std::string_view name(LossVerdict verdict);

struct LossFacts {
  Suspicion suspicion;     // this loss included
  std::uint8_t moves = 0;  // before this one
  bool has_told = false;
  bool can_resume = true;   // its kind of answer, on the workers there are
  double remaining_ms = 0;  // to the deadline
  double replay_ms = 0;     // to read prompt and ids again
};
LossVerdict judge_loss(const LossFacts& facts);

// Keeps jobs away from a worker that fails: 3 failures in 30 s open it for 5 s, twice as long each
// time up to 5 minutes; then one job is tried, and its success closes it.
class Breaker {
 public:
  bool lets_in(TimePoint now) const;
  // When it may let the next one in; the past when it does already.
  TimePoint opens_at() const { return closed_until_; }
  bool is_closed() const { return pause_.count() > 0; }  // something is held back

  void note_start(TimePoint now);  // a job was sent there
  void note_failure(TimePoint now);
  void note_success();
  void note_gone();  // the job that was sent ended for reasons of its own

 private:
  Millis pause_{0};  // 0: it is open to everybody
  TimePoint closed_until_{};
  TimePoint window_start_{};
  std::uint8_t failures_ = 0;
  bool trial_runs_ = false;
};

}  // namespace llorch::fleet
