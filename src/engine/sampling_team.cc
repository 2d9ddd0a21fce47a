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
  share(jobs.size(), [jobs](std::size_t i, Sampler& sampler) {
    SampleJob& job = jobs[i];
    job.token = base::run_job<SampledToken>("while sampling",
                                            [&] { return job.sequence->sample(sampler, job); });
  });
}

void SamplingTeam::edit(std::span<EditJob> jobs) {
  share(jobs.size(), [this, jobs](std::size_t i, Sampler& /*sampler*/) {
    EditJob& job = jobs[i];
    job.changes.clear();
    job.may_follow.clear();
    job.edits = {};
    if (job.sequence == nullptr) return;
    Status done = base::run_guarded(
        "while masking", [&] { job.sequence->edit(job, static_cast<std::int32_t>(vocab_size_)); });
    if (done.ok()) return;
    job.sequence->fail(done.error());
    job.edits = {};
  });
}

void SamplingTeam::share(std::size_t num_jobs, const Work& work) {
  next_.store(0);
  const bool is_shared =
      !helpers_.empty() && num_jobs > 1 && num_jobs * vocab_size_ >= kLogitsWorthSharing;
  if (!is_shared) return run(num_jobs, work, *samplers_.front());
  {
    const base::MutexLock lock(mutex_);
    work_ = &work;
    num_jobs_ = num_jobs;
    ++round_;
  }
  changed_.notify_all();
  run(num_jobs, work, *samplers_.front());
  const base::MutexLock lock(mutex_);
  work_ = nullptr;  // Who wakes up now is too late.
  while (num_working_ > 0) changed_.wait(mutex_);
}

void SamplingTeam::help(Sampler& sampler) {
  std::uint64_t seen = 0;
  while (true) {
    const Work* work = nullptr;
    std::size_t num_jobs = 0;
    {
      const base::MutexLock lock(mutex_);
      while (!stopping_ && (work_ == nullptr || round_ == seen)) changed_.wait(mutex_);
      if (stopping_) return;
      seen = round_;
      work = work_;
      num_jobs = num_jobs_;
      ++num_working_;
    }
    run(num_jobs, *work, sampler);
    const base::MutexLock lock(mutex_);
    if (--num_working_ == 0) changed_.notify_all();
  }
}

void SamplingTeam::run(std::size_t num_jobs, const Work& work, Sampler& sampler) {
  for (std::size_t i = next_.fetch_add(1); i < num_jobs; i = next_.fetch_add(1)) work(i, sampler);
}

}  // namespace llorch::engine
