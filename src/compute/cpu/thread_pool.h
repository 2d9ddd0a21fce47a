// A fixed team of threads that runs one loop at a time. Made for loops of microseconds, thousands
// of them per second: starting one allocates nothing, and between loops the workers spin briefly
// before they sleep.
//
// A loop is cut into pieces that threads claim one by one, and ends when its pieces are done: a
// thread that has no core holds up the piece it is at, and no loop waits for a thread that took
// none. Each thread has a share of pieces that lie side by side, so that what it reads does too,
// and takes from the others' shares, from their ends, when its own is used up.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace llorch::compute {

class ThreadPool {
 public:
  // The pieces of [0, count) that one thread claims.
  class Pieces {
   public:
    // The next one; false when there is none left.
    bool next(std::int64_t* begin, std::int64_t* end);

   private:
    friend ThreadPool;
    ThreadPool* pool_ = nullptr;  // null: nobody else takes part
    int thread_ = 0;
    std::int64_t count_ = 0;
    std::int64_t pieces_ = 0;
    std::int64_t claimed_ = -1;  // not given out yet
    std::uint32_t taken_ = 0;
  };

  // num_threads counts the caller of parallel_for, which always takes part.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }
  // Loops so far that more than the caller could take part in.
  std::int64_t num_meetings() const { return num_meetings_; }

  // Cuts [0, count) into `pieces` of nearly equal size (at most count, and kPiecesMax) and calls
  // body(thread, Pieces&) once in each thread that gets one; the body asks for pieces until there
  // are none. Returns when all are done. One caller at a time, never from inside a body.
  template <class Body>
  void share_out(std::int64_t count, std::int64_t pieces, const Body& body) {
    run(
        count, pieces,
        [](const void* context, int thread, Pieces& mine) {
          (*static_cast<const Body*>(context))(thread, mine);
        },
        &body);
  }

  // body(thread, begin, end) for shares of [0, count), as many as there are threads.
  template <class Body>
  void parallel_for(std::int64_t count, const Body& body) {
    share_out(count, num_threads_, [&body](int thread, Pieces& pieces) {
      std::int64_t begin = 0;
      std::int64_t end = 0;
      while (pieces.next(&begin, &end)) body(thread, begin, end);
    });
  }

  static constexpr std::int64_t kPiecesMax = 4095;

 private:
  using Call = void (*)(const void* context, int thread, Pieces& mine);

  void run(std::int64_t count, std::int64_t pieces, Call call, const void* context);
  // The number of a piece nobody had, or -1.
  std::int64_t claim(int thread);
  void take_part(int thread, std::int64_t first);
  void work(int thread);

  // Loop number << 24 | end of what nobody had << 12 | its begin. A claim is one exchange of it, so
  // nobody can take a piece of a loop that is over.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> state = 0;
  };

  const int num_threads_;

  // The current loop: written by the caller while no piece is out, read by whoever has claimed one.
  std::int64_t count_ = 0;
  std::int64_t pieces_ = 0;
  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::int64_t num_meetings_ = 0;  // the caller's alone

  std::atomic<bool> stopping_ = false;
  std::uint64_t loop_ = 0;  // the caller's alone
  std::vector<Share> shares_;
  std::atomic<std::uint32_t> generation_ = 0;  // one more for each loop: what sleepers wait for
  std::atomic<std::uint32_t> done_ = 0;        // pieces of the current loop
  std::vector<std::jthread> workers_;
};

}  // namespace llorch::compute
