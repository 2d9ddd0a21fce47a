// Engine: continuous batching over one model. One thread owns every sequence, the cache bookkeeping
// and the runner; the rest of the process speaks to it through submit, cancel and stats.
//
// Same request, same seed, same build and device → same ids, whatever else is in the batch, whether
// its prefix came from the cache, and however often it was preempted.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/request.h"
#include "model/runner.h"

namespace llorch::engine {

struct EngineOptions {
  std::int32_t max_running = 16;  // sequences of one step; at most the runner's limit
  std::int32_t max_waiting = 64;  // beyond max_running + max_waiting submitted: QueueFull
  // Rows of one step, where that is fewer than the runner takes.
  std::int32_t step_tokens = std::numeric_limits<std::int32_t>::max();
  std::int32_t sampling_threads = 1;  // that choose tokens; the engine's own among them
  bool prefix_cache = true;
  const base::Clock* clock = &base::real_clock();  // outlives the engine
};

// Read at any time from any thread without waiting for the engine.
struct EngineStats {
  std::int32_t waiting = 0;
  std::int32_t running = 0;
  std::int32_t max_running = 0;
  std::int32_t blocks_total = 0;
  std::int32_t blocks_free = 0;    // cached blocks that nobody holds count as free
  std::int64_t prompt_tokens = 0;  // computed since the start
  std::int64_t cached_tokens = 0;  // found in the prefix cache since the start
  std::int64_t output_tokens = 0;
  std::int64_t steps = 0;
  std::int64_t preemptions = 0;
  std::int64_t finished[6] = {};         // by FinishReason
  Clock::time_point last_token_at = {};  // epoch: none yet
  Clock::time_point step_began_at = {};  // of the step that runs now; epoch: none does
  double decode_tokens_per_second = 0;   // over the last seconds
};

using GenerationId = std::uint64_t;

class Engine {
 public:
  static std::unique_ptr<Engine> start(std::unique_ptr<model::ModelRunner> runner,
                                       const EngineOptions& options);
  ~Engine();  // stops
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // QueueFull when as many run and wait as may (max_running + max_waiting, counted here and now,
  // not when the thread has looked), InvalidArgument with both counts when prompt and max_tokens do
  // not fit the context, OutOfMemory when they can never fit the cache, Unavailable when stopping.
  // The sink hears nothing after a failure here.
  Result<GenerationId> submit(GenerationRequest request, std::shared_ptr<GenerationSink> sink);
  // All of them, in their order, or none. InvalidArgument when they are more than ever run and
  // wait.
  struct Submission {
    GenerationRequest request;
    std::shared_ptr<GenerationSink> sink;
  };
  Result<std::vector<GenerationId>> submit(std::vector<Submission> submissions);
  Result<GenerationId> submit(EmbeddingRequest request, std::shared_ptr<EmbeddingSink> sink);

  // Ends it soon: within a layer when it computes, at once when it waits. Unknown and finished ids
  // are ignored.
  void cancel(GenerationId id);

  // Ends everything that runs or waits with Cancelled, then the thread. Idempotent.
  void stop();

  EngineStats stats() const;
  std::int32_t context_length() const;
  // The most tokens that one sequence can ever hold: the context, or less when the cache is
  // smaller.
  std::int32_t max_sequence_tokens() const;

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace llorch::engine
