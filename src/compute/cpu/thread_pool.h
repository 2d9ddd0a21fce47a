// A fixed team of threads that runs one loop at a time, split evenly. Made for loops of
// microseconds, thousands of them per second: starting one allocates nothing, and between loops the
// workers spin briefly before they sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace llorch::compute {

class ThreadPool {
 public:
  // num_threads counts the caller of parallel_for, which always takes part.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  // Loops so far that more than the caller took part in.
  std::int64_t num_meetings() const { return num_meetings_; }

  // Calls body(thread_index, begin, end) once per thread with its contiguous share of [0, count);
  // empty shares are not called. Returns when all are done. One caller at a time, never from inside
  // a body.
  template <class Body>
  void parallel_for(std::int64_t count, const Body& body) {
    run(
        count,
        [](const void* context, int thread, std::int64_t begin, std::int64_t end) {
          (*static_cast<const Body*>(context))(thread, begin, end);
        },
        &body);
  }

 private:
  using Call = void (*)(const void* context, int thread, std::int64_t begin, std::int64_t end);

  void run(std::int64_t count, Call call, const void* context);
  void run_share(int thread) const;
  void work(int thread);

  const int num_threads_;

  // The current loop: written by the caller before generation_ moves, read by workers after.
  std::int64_t count_ = 0;
  Call call_ = nullptr;
  const void* context_ = nullptr;
  bool stopping_ = false;
  std::int64_t num_meetings_ = 0;  // the caller's alone

  std::atomic<std::uint32_t> generation_ = 0;  // one more for each loop
  std::atomic<std::uint32_t> pending_ = 0;     // workers that have not finished the current loop
  std::vector<std::jthread> workers_;
};

}  // namespace llorch::compute
