// What a worker's own counters say about its speed: two looks at them make a measurement. Pure;
// private to pool/.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace llorch::pool {

// One look at a worker's /metrics.
struct WorkerCounters {
  std::int64_t prompt_tokens = 0;  // computed since it started
  std::int64_t first_tokens = 0;   // requests that have ended and had one
  double first_token_s = 0;        // their times from arrival to the first token, together
  double queue_s = 0;              // and of these what they waited
  std::int64_t decodes = 0;        // requests that have ended and had more than one token
  double token_s = 0;              // the sum of their mean times between two tokens
  std::int32_t slots_busy = 0;
  double decode_tps = 0;  // of all streams together, over the last seconds
};
// None: the page has not what is needed (another program, an older worker).
std::optional<WorkerCounters> read_counters(std::string_view page);

struct SpeedSample {
  std::int32_t streams = 0;  // 0: of prompts; else of each of so many streams
  double tps = 0;
};

// The steps that numbers of streams are counted in: 1, 2, 4 … 64.
std::int32_t stream_step(std::int32_t streams);

// Of one process. Prompts are measured from one idle moment to the next, or over many requests, so
// that what is under way falls out; a single stream by the one request that ended in between;
// several by the rate of seconds in which their number stayed the same.
class SpeedLearner {
 public:
  std::vector<SpeedSample> take(const WorkerCounters& now);

 private:
  std::optional<WorkerCounters> from_;  // where the stretch began that is being measured
  std::int32_t busy_ = 0;               // streams at the last look
  int steady_looks_ = 0;                // in a row with that many
  bool was_shared_ = false;             // in this stretch two streams ran at once
};

}  // namespace llorch::pool
