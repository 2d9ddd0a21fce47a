// Questions to workers that may take a while: asked on threads of their own, answered by callback.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/channel.h"
#include "base/process_table.h"
#include "base/result.h"
#include "http/client.h"
#include "pool/speed_learner.h"
#include "pool/worker_policy.h"

namespace llorch::pool {

struct ProbeJob {
  enum class Kind : std::uint8_t { Health, Token, Shutdown, Memory };
  Kind kind = Kind::Health;
  std::string worker;
  std::uint64_t start = 0;  // which start of it: an answer about another one is of no use
  std::uint16_t port = 0;
  int pid = 0;                         // 0: not known yet
  std::optional<std::int32_t> gpu;     // none: no VRAM to look at
  bool with_metrics = false;           // Health: also rate and steps
  std::chrono::seconds drain_time{0};  // Shutdown: how long what runs may go on
  std::chrono::milliseconds timeout{0};
};

struct ProbeResult {
  ProbeJob job;
  Result<HealthAnswer> health = Error{};  // Health
  double tokens_per_second = 0;
  std::optional<WorkerCounters> counters;  // Health, where metrics were asked for
  base::ProcessMemory memory;
  std::int64_t vram_bytes = 0;   // Health, Memory
  bool token_failed = false;     // Token: none came in time
  bool shutdown_failed = false;  // Shutdown: it was not reached, or refused
};

// A few threads and a queue. Whoever submits keeps the number under way small: one of each kind for
// a worker.
class Prober {
 public:
  using VramOf = std::function<std::int64_t(std::int32_t gpu, std::int64_t pid)>;
  // `on_result` is called on the threads of the prober, also for Shutdown.
  Prober(int num_threads, VramOf vram_of, std::function<void(ProbeResult)> on_result);
  // What waits or is under way is given up.
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  // Never waits. Too many at once: the result says that the worker could not be asked.
  void submit(ProbeJob job);
  // The same on the caller's thread: blocks for as long as the job's timeout.
  ProbeResult ask_now(const ProbeJob& job);

 private:
  void run();
  ProbeResult answer(const ProbeJob& job);
  Result<HealthAnswer> ask_health(const ProbeJob& job, ProbeResult& result);
  bool ask_token(const ProbeJob& job);
  bool ask_shutdown(const ProbeJob& job);
  http::ClientRequest request_to(const ProbeJob& job, http::Method method,
                                 std::string_view path) const;

  const VramOf vram_of_;
  const std::function<void(ProbeResult)> on_result_;
  http::Client client_;
  base::Channel<ProbeJob> jobs_;
  std::stop_source stop_;
  std::vector<std::jthread> threads_;  // last: they use the others
};

// The value of one line of a metrics page ("name 12.5").
std::optional<double> find_metric(std::string_view page, std::string_view name);

}  // namespace llorch::pool
