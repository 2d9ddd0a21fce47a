// SamplingTeam: the tokens of a step, sampled by several threads at once; and where a device
// samples, what it has to know of the host.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/sampler.h"
#include "model/batch.h"

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

// A row whose id the runner chooses: what is done to its logits before.
struct EditJob {
  Sequence* sequence = nullptr;  // null: nothing
  model::RowEdits edits;         // the answer, of what is below
  std::vector<model::LogitChange> changes;
  std::vector<std::uint32_t> may_follow;
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
  // Likewise; sequences whose constraint throws fail.
  void edit(std::span<EditJob> jobs);

 private:
  // One of some jobs, by its number.
  using Work = std::function<void(std::size_t, Sampler&)>;
  // All of them, by several threads where there is enough to do.
  void share(std::size_t num_jobs, const Work& work);
  void help(Sampler& sampler);
  void run(std::size_t num_jobs, const Work& work, Sampler& sampler);

  std::size_t vocab_size_;
  std::vector<std::unique_ptr<Sampler>> samplers_;  // one for each thread; the first is the owner's
  std::atomic<std::size_t> next_ = 0;               // job of this round

  base::Mutex mutex_;
  base::CondVar changed_;
  const Work* work_ LLORCH_GUARDED_BY(mutex_) = nullptr;  // of this round; null between rounds
  std::size_t num_jobs_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::uint64_t round_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::int32_t num_working_ LLORCH_GUARDED_BY(mutex_) = 0;  // without the owner
  bool stopping_ LLORCH_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> helpers_;
};

}  // namespace llorch::engine
