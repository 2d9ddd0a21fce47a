#include "compute/cpu/thread_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/thread.h"

namespace llorch::compute {
namespace {

// Some tens of microseconds: longer than the gap between two ops of a step, short enough not to
// burn a core while nobody asks for anything.
constexpr int kSpins = 2000;

constexpr int kPieceBits = 12;
constexpr std::uint64_t kPieceMask = (std::uint64_t{1} << kPieceBits) - 1;
static_assert(ThreadPool::kPiecesMax == static_cast<std::int64_t>(kPieceMask));

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

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads), shares_(static_cast<std::size_t>(std::max(num_threads, 1))) {
  CHECK(num_threads >= 1);
  workers_.reserve(static_cast<std::size_t>(num_threads - 1));
  for (int thread = 1; thread < num_threads; ++thread) {
    workers_.push_back(base::start_thread("compute", [this, thread] { work(thread); }));
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

bool ThreadPool::Pieces::next(std::int64_t* begin, std::int64_t* end) {
  std::int64_t piece = claimed_;
  claimed_ = -1;
  if (piece < 0) piece = pool_ == nullptr ? -1 : pool_->claim(thread_);
  if (piece < 0) return false;
  ++taken_;
  *begin = count_ * piece / pieces_;
  *end = count_ * (piece + 1) / pieces_;
  return true;
}

void ThreadPool::run(std::int64_t count, std::int64_t pieces, Call call, const void* context) {
  if (count <= 0) return;
  pieces = std::clamp<std::int64_t>(pieces, 1, std::min(count, kPiecesMax));
  if (num_threads_ == 1 || pieces == 1) {
    Pieces all;
    all.count_ = count;
    all.pieces_ = 1;
    all.claimed_ = 0;
    call(context, 0, all);
    return;
  }
  ++num_meetings_;
  count_ = count;
  pieces_ = pieces;
  call_ = call;
  context_ = context;
  done_.store(0, std::memory_order_relaxed);
  ++loop_;
  for (int thread = 0; thread < num_threads_; ++thread) {
    const auto begin = static_cast<std::uint64_t>(pieces * thread / num_threads_);
    const auto end = static_cast<std::uint64_t>(pieces * (thread + 1) / num_threads_);
    shares_[static_cast<std::size_t>(thread)].state.store(
        loop_ << (2 * kPieceBits) | end << kPieceBits | begin, std::memory_order_release);
  }
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  const std::int64_t first = claim(0);
  if (first >= 0) take_part(0, first);
  std::uint32_t done = done_.load(std::memory_order_acquire);
  while (done != static_cast<std::uint32_t>(pieces)) done = wait_while(done_, done);
}

// The first of its own, or the last of another's: nearest to those that its owner comes to last.
std::int64_t ThreadPool::claim(int thread) {
  for (int i = 0; i < num_threads_; ++i) {
    const int owner = (thread + i) % num_threads_;
    std::atomic<std::uint64_t>& share = shares_[static_cast<std::size_t>(owner)].state;
    std::uint64_t state = share.load(std::memory_order_acquire);
    for (;;) {
      const std::uint64_t begin = state & kPieceMask;
      const std::uint64_t end = state >> kPieceBits & kPieceMask;
      if (begin >= end) break;
      const std::uint64_t left = i == 0 ? state + 1 : state - (std::uint64_t{1} << kPieceBits);
      if (share.compare_exchange_weak(state, left, std::memory_order_acq_rel))
        return static_cast<std::int64_t>(i == 0 ? begin : end - 1);
    }
  }
  return -1;
}

// With a claimed piece in hand the loop cannot end, and nothing of it can change.
void ThreadPool::take_part(int thread, std::int64_t first) {
  Pieces mine;
  mine.pool_ = this;
  mine.thread_ = thread;
  mine.count_ = count_;
  mine.pieces_ = pieces_;
  mine.claimed_ = first;
  const auto all = static_cast<std::uint32_t>(pieces_);
  call_(context_, thread, mine);
  if (done_.fetch_add(mine.taken_, std::memory_order_acq_rel) + mine.taken_ == all)
    done_.notify_one();
}

void ThreadPool::work(int thread) {
  for (std::uint32_t seen = 0;;) {
    const std::uint32_t now = wait_while(generation_, seen);
    if (now == seen) continue;
    seen = now;
    if (stopping_.load(std::memory_order_relaxed)) return;
    const std::int64_t first = claim(thread);
    if (first >= 0) take_part(thread, first);
  }
}

}  // namespace llorch::compute
