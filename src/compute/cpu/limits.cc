#include "compute/limits.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "compute/cpu/kernels.h"
#include "compute/cpu/packed.h"
#include "compute/cpu/thread_pool.h"
#include "compute/host_memory.h"

namespace llorch::compute {
namespace {

constexpr int kRepeats = 5;

// The shortest of a few runs.
template <class F>
double seconds_of(const F& work) {
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::min(best, took.count());
  }
  return best;
}

// Twice what the caches hold, as far as the machine tells, and no more than it can well spare.
std::int64_t bytes_to_read() {
  constexpr std::int64_t kLeast = std::int64_t{256} << 20;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return std::clamp<std::int64_t>(2 * ::sysconf(_SC_LEVEL3_CACHE_SIZE), kLeast, kMost);
}

}  // namespace

Result<HostLimits> measure_host_limits(int num_threads) {
  const std::int64_t bytes = bytes_to_read();
  Result<Buffer> memory = allocate_host_pages(bytes);
  if (!memory.ok()) return memory.error();
  ThreadPool pool(num_threads);
  const PackedKernels& kernels = *available_isas().front().packed;
  auto* words = static_cast<std::uint64_t*>(memory->data());
  const std::int64_t lines = bytes / 64;
  pool.parallel_for(lines, [&](int, std::int64_t begin, std::int64_t end) {
    std::fill(words + begin * 8, words + end * 8, 1);
  });
  HostLimits limits;
  std::atomic<std::uint64_t> total = 0;
  const auto sum_words =
      kernels.loops.sum_words != nullptr ? kernels.loops.sum_words : kPackedPlain.loops.sum_words;
  const auto read = [&] {
    pool.share_out(lines, std::int64_t{16} * num_threads, [&](int, ThreadPool::Pieces& pieces) {
      std::int64_t begin = 0;
      std::int64_t end = 0;
      while (pieces.next(&begin, &end)) total += sum_words(words + begin * 8, (end - begin) * 8);
    });
  };
  limits.read_bytes_per_second = static_cast<double>(bytes) / seconds_of(read);
  CHECK(total == static_cast<std::uint64_t>(lines * 8 * kRepeats), "reading was left out");

  constexpr std::int64_t kRounds = 200'000;
  const auto peak = [&](std::int64_t (*spin)(std::int64_t)) {
    std::atomic<std::int64_t> ops = 0;
    const double seconds = seconds_of([&] {
      ops = 0;
      pool.parallel_for(num_threads, [&](int, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ops += spin(kRounds);
      });
    });
    return static_cast<double>(ops.load()) / seconds;
  };
  limits.int8_ops_per_second = peak(kernels.loops.int8);
  limits.float_ops_per_second = peak(kernels.loops.floats);
  if (kernels.loops.bf16 != nullptr) limits.bf16_ops_per_second = peak(kernels.loops.bf16);

  constexpr int kMeetings = 2000;
  limits.meeting_seconds =
      seconds_of([&] {
        for (int i = 0; i < kMeetings; ++i)
          pool.parallel_for(num_threads, [](int, std::int64_t, std::int64_t) {});
      }) /
      kMeetings;
  return limits;
}

}  // namespace llorch::compute
