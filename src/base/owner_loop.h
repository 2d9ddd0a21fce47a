// OwnerLoop: one thread that owns some state; other threads send it jobs.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/channel.h"
#include "base/clock.h"

namespace llorch::base {

// Jobs run one after the other, in the order they came. What a job throws fails that job alone: it
// is logged, or thrown again in the thread that asked.
class OwnerLoop {
 public:
  using Job = std::function<void()>;
  // How long the thread rests when no job comes.
  struct Rest {
    Clock::TimePoint until = Clock::TimePoint::max();
    std::vector<int> files;  // descriptors; it also goes on when one of them can be read
  };
  // What the owner does on its own: called at the start, after jobs and after each rest.
  using Turn = std::function<Rest()>;

  OwnerLoop(std::string name, std::size_t max_waiting, Turn turn = nullptr);
  ~OwnerLoop();
  OwnerLoop(const OwnerLoop&) = delete;
  OwnerLoop& operator=(const OwnerLoop&) = delete;

  // Any thread, the owner's too; never waits. False: too many jobs wait, or it has been stopped.
  [[nodiscard]] bool post(Job job);

  // The same, but where nothing runs or waits the job runs at once, on the calling thread, which is
  // the owner for that long: nobody has to wake up for it. For short jobs that never wait. Its turn
  // comes with the thread's next one.
  [[nodiscard]] bool run_or_post(Job job);

  // Runs `work` on the thread and returns what it returns, or throws what it threw. Any other
  // thread, and not after stop().
  template <class Work>
  std::invoke_result_t<Work&> ask(Work work) {
    // Shared: the answer is here before the call has returned over there.
    const auto task =
        std::make_shared<std::packaged_task<std::invoke_result_t<Work&>()>>(std::move(work));
    auto answer = task->get_future();
    push_or_die([task] { (*task)(); });
    return answer.get();
  }

  // Takes no more jobs, runs those that wait and ends the thread. Idempotent; one caller at a time.
  void stop();

 private:
  void push_or_die(Job job);  // waits while the queue is full
  bool try_run(const Job& job);
  void wake() const;
  void run();
  void run_jobs();
  void rest(const Rest& rest) const;

  const std::string doing_;  // for messages: "in the errands thread"
  const Turn turn_;
  const int wake_file_;  // readable when there is something to do
  Channel<Job> jobs_;
  std::atomic<std::size_t> num_waiting_ = 0;  // in jobs_, or about to be
  std::atomic<bool> is_owned_ = false;        // somebody runs jobs or the turn
  std::jthread thread_;                       // last: it uses the others
};

}  // namespace llorch::base
