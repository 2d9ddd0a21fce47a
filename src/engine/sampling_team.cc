#include "engine/sampling_team.h"

#include "base/job_border.h"
#include "base/thread.h"
#include "engine/sequence.h"

namespace llorch::engine {
namespace {

// Fewer logits than this are sampled before another thread is awake.
constexpr std::size_t kLogitsWorthSharing = 100'000;

}  // namespace

SamplingTeam::SamplingTeam(std::int32_t vocab_size, std::int32_t num_threads)
    : vocab_size_(static_cast<std::size_t>(vocab_size)) {
  for (std::int32_t i = 0; i < num_threads; ++i)
    samplers_.push_back(std::make_unique<Sampler>(vocab_size));
  for (std::size_t i = 1; i < samplers_.size(); ++i)
    helpers_.push_back(base::start_thread("sampler", [this, i] { help(*samplers_[i]); }));
}

SamplingTeam::~SamplingTeam() {
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  helpers_.clear();  // joins
}

void SamplingTeam::sample(std::span<SampleJob> jobs) {
  next_.store(0);
  const bool is_shared =
      !helpers_.empty() && jobs.size() > 1 && jobs.size() * vocab_size_ >= kLogitsWorthSharing;
  if (!is_shared) return work(jobs, *samplers_.front());
  {
    const base::MutexLock lock(mutex_);
    jobs_ = jobs;
    ++round_;
  }
  changed_.notify_all();
  work(jobs, *samplers_.front());
  const base::MutexLock lock(mutex_);
  jobs_ = {};  // Who wakes up now is too late.
  while (num_working_ > 0) changed_.wait(mutex_);
}

void SamplingTeam::help(Sampler& sampler) {
  std::uint64_t seen = 0;
  while (true) {
    std::span<SampleJob> jobs;
    {
      const base::MutexLock lock(mutex_);
      while (!stopping_ && (jobs_.empty() || round_ == seen)) changed_.wait(mutex_);
      if (stopping_) return;
      seen = round_;
      jobs = jobs_;
      ++num_working_;
    }
    work(jobs, sampler);
    const base::MutexLock lock(mutex_);
    if (--num_working_ == 0) changed_.notify_all();
  }
}

void SamplingTeam::work(std::span<SampleJob> jobs, Sampler& sampler) {
  for (std::size_t i = next_.fetch_add(1); i < jobs.size(); i = next_.fetch_add(1)) {
    SampleJob& job = jobs[i];
    job.token = base::run_job<SampledToken>("while sampling",
                                            [&] { return job.sequence->sample(sampler, job); });
  }
}

}  // namespace llorch::engine
