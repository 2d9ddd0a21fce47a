#include "base/owner_loop.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>

#include "base/check.h"
#include "base/job_border.h"
#include "base/log.h"
#include "base/result.h"
#include "base/thread.h"

namespace llorch::base {
namespace {

// After a turn that failed, so that it does not fail again at once and for ever.
constexpr int kFailurePauseMs = 200;

void log_failure(const Error& error) {
  Logger("base").error("a job failed", {{"error", error.message}});
}

// Gives up what its maker has taken.
class Ownership {
 public:
  explicit Ownership(std::atomic<bool>& is_owned) : is_owned_(is_owned) {}
  ~Ownership() {
    is_owned_ = false;
    is_owned_.notify_one();
  }
  Ownership(const Ownership&) = delete;
  Ownership& operator=(const Ownership&) = delete;

 private:
  std::atomic<bool>& is_owned_;
};

int poll_patience(Clock::TimePoint until) {
  if (until == Clock::TimePoint::max()) return -1;
  const Clock::TimePoint now = real_clock().now();
  if (until <= now) return 0;  // perhaps too far back to subtract from
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  return static_cast<int>(std::min<std::int64_t>(left, std::numeric_limits<int>::max()));
}

}  // namespace

OwnerLoop::OwnerLoop(std::string name, std::size_t max_waiting, Turn turn)
    : doing_("in the " + name + " thread"),
      turn_(std::move(turn)),
      wake_file_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      jobs_(max_waiting) {
  CHECK(wake_file_ >= 0, "no file descriptor left for a thread");
  thread_ = start_thread(std::move(name), [this] { run(); });
}

OwnerLoop::~OwnerLoop() {
  stop();
  ::close(wake_file_);
}

bool OwnerLoop::post(Job job) {
  ++num_waiting_;
  if (!jobs_.try_push(std::move(job))) {
    --num_waiting_;
    return false;
  }
  wake();
  return true;
}

bool OwnerLoop::run_or_post(Job job) {
  return try_run(job) || post(std::move(job));
}

bool OwnerLoop::try_run(const Job& job) {
  // Also where this very thread runs a job: that one is to end first.
  if (num_waiting_ > 0 || is_owned_.exchange(true)) return false;
  const Ownership owns(is_owned_);
  if (num_waiting_ > 0 || jobs_.is_closed()) return false;
  if (const Status done = run_guarded(doing_, job); !done.ok()) log_failure(done.error());
  return true;
}

void OwnerLoop::push_or_die(Job job) {
  CHECK(std::this_thread::get_id() != thread_.get_id(), "the owner may not wait for itself");
  ++num_waiting_;
  CHECK(jobs_.push(std::move(job)), "asked after the end");
  wake();
}

void OwnerLoop::stop() {
  jobs_.close();
  wake();
  if (thread_.joinable()) thread_.join();
  while (is_owned_) is_owned_.wait(true);  // a caller of run_or_post is still at it
}

void OwnerLoop::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_file_, &one, sizeof one);
}

void OwnerLoop::run() {
  for (bool is_closed = false; !is_closed;) {
    const Status passed = run_guarded(doing_, [this, &is_closed] {
      is_closed = jobs_.is_closed();  // before the last look: nothing comes after it
      Rest next;
      {
        while (is_owned_.exchange(true)) is_owned_.wait(true);
        const Ownership owns(is_owned_);
        run_jobs();
        if (!is_closed && turn_) next = turn_();
      }
      if (!is_closed) rest(next);
    });
    if (passed.ok()) continue;
    log_failure(passed.error());
    pollfd file{wake_file_, POLLIN, 0};
    ::poll(&file, 1, kFailurePauseMs);
  }
}

void OwnerLoop::run_jobs() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t cleared = ::read(wake_file_, &count, sizeof count);
  const std::deque<Job> jobs = jobs_.take_all();
  num_waiting_ -= jobs.size();
  for (const Job& job : jobs) {
    if (const Status done = run_guarded(doing_, job); !done.ok()) log_failure(done.error());
  }
}

void OwnerLoop::rest(const Rest& rest) const {
  std::vector<pollfd> files = {{wake_file_, POLLIN, 0}};
  for (const int file : rest.files) files.push_back({file, POLLIN, 0});
  ::poll(files.data(), files.size(), poll_patience(rest.until));
}

}  // namespace llorch::base
