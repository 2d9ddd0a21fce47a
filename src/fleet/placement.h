// Where the next job of a line goes: to a worker, to one that is loaded for it, or nowhere yet. A
// pure function over values; the score sheet says why.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/handles.h"
#include "fleet/prefix_table.h"
#include "fleet/records.h"
#include "fleet/speeds.h"

namespace llorch::fleet {

// Why a candidate is out of the question. Up to kLastLasting no waiting helps.
enum class Refusal : std::uint8_t {
  None,
  PinnedElsewhere,
  Labels,
  ContextTooSmall,
  CannotResume,
  NoBackend,  // no program for this model on that device
  TooBig,     // for the device, even if it were empty
  DiskFull,
  // Those below may pass.
  HostDown,
  Draining,
  BreakerOpen,
  NotExact,      // another arithmetic than the one that told the answer so far
  OtherSuspect,  // another job that may kill workers runs there
  MemoryInUse,   // by workers that somebody started, or by other programs
  MemoryBusy,    // by workers that leave once they have done what they do
  MakesRoom,     // takes no more jobs, because another model has waited for its memory
  LoadFailed,    // a moment ago
  LoadBroke,     // a moment ago, by an accident: it is tried again
  AlreadyLoading,
  AlreadyThere,  // a worker of the model takes jobs on that device: a second one shares its cores
};
inline constexpr Refusal kLastLasting = Refusal::DiskFull;
inline constexpr std::size_t kRefusals = static_cast<std::size_t>(Refusal::AlreadyThere) + 1;
std::string_view name(Refusal refusal);  // a few words for people

// A worker of the job's model. Kept up to date in one array for each model.
struct WorkerView {
  WorkerIndex worker = kNone;
  HostIndex host = kNone;
  SpeedIndex speed = 0;
  Refusal closed = Refusal::None;  // to everybody: HostDown, Draining, BreakerOpen
  bool is_loading = false;
  bool is_paused = false;  // it refused or lost a job a moment ago; until next_free
  bool has_suspect = false;
  bool can_resume = true;
  std::uint16_t slots = 1;
  std::uint16_t busy = 0;
  std::uint32_t context = 0;    // tokens of one sequence; 0: not known
  float trust = 1;              // in predicted cache hits, 0..1
  std::uint64_t labels = 0;     // of its host, as bits
  std::uint64_t exactness = 0;  // equal: the same arithmetic, bit for bit
  TimePoint next_free{};        // of the first slot, when there is none now
};

// A device on which the job's model could be loaded.
struct DeviceView {
  DeviceIndex device = kNone;
  HostIndex host = kNone;
  SpeedIndex speed = 0;
  Refusal closed = Refusal::None;
  std::uint64_t labels = 0;
  std::uint32_t context = 0;
  double load_ms = 0;  // fetching what is missing, draining what leaves, starting
};

struct JobView {
  Mode mode = Mode::Fast;
  HostIndex pin = kNone;
  std::uint64_t labels = 0;
  bool is_suspect = false;
  bool must_resume = false;     // something was told
  bool must_be_exact = false;   // somebody may hold ids that we do not know
  std::uint64_t exactness = 0;  // of the workers that told it; 0: any
  double prompt_tokens = 0;     // with what is replayed
  double expected_output = 0;
  double tokens_per_block = 0;  // of the prefix table
  std::uint32_t needed_context = 0;
  double remaining_ms = std::numeric_limits<double>::infinity();
  std::span<const PrefixHit> hits;
};

struct Snapshot {
  std::span<const WorkerView> workers;
  std::span<const DeviceView> devices;
  const Speeds* speeds = nullptr;
  double line_ms = 0;  // how long the last one in line would wait for the workers there are
  TimePoint now{};
};

// One candidate's terms, in milliseconds; they add up to finish_ms.
struct ScoreLine {
  WorkerIndex worker = kNone;  // or
  DeviceIndex device = kNone;
  HostIndex host = kNone;
  Refusal refusal = Refusal::None;
  float finish_ms = 0;
  float wait_ms = 0;
  float load_ms = 0;
  float prefill_ms = 0;
  float decode_ms = 0;
  float harm_ms = 0;   // to its neighbours, weighted
  float bonus_ms = 0;  // for the same arithmetic; negative
  float cached_tokens = 0;
};

// The best candidates first; of the others how many for which reason.
struct ScoreSheet {
  static constexpr std::size_t kLinesMax = 64;
  std::vector<ScoreLine> best;     // scored, by finish_ms
  std::vector<ScoreLine> refused;  // the first ones
  std::array<std::uint32_t, kRefusals> refusals{};
  std::uint32_t scored = 0;
};

enum class Choice : std::uint8_t {
  UseWorker,
  Load,
  Wait,    // for a busy worker, a load, or a host
  Refuse,  // no waiting helps
  TooLate,
};
struct Decision {
  Choice choice = Choice::Wait;
  WorkerIndex worker = kNone;  // UseWorker; with Wait the one it waits for, if any
  DeviceIndex device = kNone;  // Load
  double start_ms = 0;         // until it begins there, predicted
  double finish_ms = 0;
  double service_ms = 0;  // of that in the slot
  double prefill_ms = 0;
  float cached_tokens = 0;
};

// The sheet is written anew; its memory is used again. Linear in workers and devices.
Decision place(const Snapshot& snapshot, const JobView& job, ScoreSheet& sheet);

}  // namespace llorch::fleet
