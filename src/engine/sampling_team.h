// SamplingTeam: the tokens of a step, sampled by several threads at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/sampler.h"

namespace llorch::engine {

class Sequence;

// A row of a step whose result its sequence waits for.
struct SampleJob {
  Sequence* sequence = nullptr;
  std::int32_t position = 0;
  std::span<const float> logits;  // (vocab_size); empty where the runner found the argmax
  TokenId argmax = 0;
  std::optional<Result<SampledToken>> token;  // the answer
};

// The owner's thread and num_threads - 1 of its own, which sleep between steps.
class SamplingTeam {
 public:
  SamplingTeam(std::int32_t vocab_size, std::int32_t num_threads);
  ~SamplingTeam();
  SamplingTeam(const SamplingTeam&) = delete;
  SamplingTeam& operator=(const SamplingTeam&) = delete;

  // Answers all of them; each answer is the same whoever gives it. A thread may touch the sequence
  // of a job until this returns.
  void sample(std::span<SampleJob> jobs);

 private:
  void help(Sampler& sampler);
  void work(std::span<SampleJob> jobs, Sampler& sampler);

  std::size_t vocab_size_;
  std::vector<std::unique_ptr<Sampler>> samplers_;  // one for each thread; the first is the owner's
  std::atomic<std::size_t> next_ = 0;               // job of this round

  base::Mutex mutex_;
  base::CondVar changed_;
  std::span<SampleJob> jobs_ LLORCH_GUARDED_BY(mutex_);  // of this round; empty between rounds
  std::uint64_t round_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::int32_t num_working_ LLORCH_GUARDED_BY(mutex_) = 0;  // without the owner
  bool stopping_ LLORCH_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> helpers_;
};

}  // namespace llorch::engine
