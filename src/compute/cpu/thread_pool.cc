#include "compute/cpu/thread_pool.h"

#include "base/check.h"
#include "base/thread.h"

namespace llorch::compute {
namespace {

// Some tens of microseconds: longer than the gap between two ops of a step, short enough not to
// burn a core while nobody asks for anything.
constexpr int kSpins = 2000;

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `value` is something else than `old`, and returns that.
std::uint32_t wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause_briefly();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  CHECK(num_threads >= 1);
  workers_.reserve(static_cast<std::size_t>(num_threads - 1));
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.push_back(base::start_thread("compute", [this, thread] { work(thread); }));
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

void ThreadPool::run(std::int64_t count, Call call, const void* context) {
  if (count <= 0) return;
  if (num_threads_ == 1 || count == 1) {
    call(context, 0, 0, count);
    return;
  }
  ++num_meetings_;
  count_ = count;
  call_ = call;
  context_ = context;
  pending_.store(static_cast<std::uint32_t>(num_threads_ - 1), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  run_share(0);
  std::uint32_t pending = pending_.load(std::memory_order_acquire);
  while (pending != 0) pending = wait_while(pending_, pending);
}

void ThreadPool::run_share(int thread) const {
  const std::int64_t begin = count_ * thread / num_threads_;
  const std::int64_t end = count_ * (thread + 1) / num_threads_;
  if (begin < end) call_(context_, thread, begin, end);
}

void ThreadPool::work(int thread) {
  for (std::uint32_t seen = 0;;) {
    const std::uint32_t now = wait_while(generation_, seen);
    if (now == seen) continue;
    seen = now;
    if (stopping_) return;
    run_share(thread);
    pending_.fetch_sub(1, std::memory_order_acq_rel);
    pending_.notify_one();
  }
}

}  // namespace llorch::compute
