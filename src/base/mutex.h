// The only mutex of the house. Clang checks what it guards: a member marked LLORCH_GUARDED_BY that
// is touched without its mutex does not compile there (-Wthread-safety). Other compilers see plain
// locks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define LLORCH_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define LLORCH_THREAD_ANNOTATION(x)
#endif

// Of a member: read and written only with this mutex held. PT: what a pointer points to.
#define LLORCH_GUARDED_BY(mutex) LLORCH_THREAD_ANNOTATION(guarded_by(mutex))
#define LLORCH_PT_GUARDED_BY(mutex) LLORCH_THREAD_ANNOTATION(pt_guarded_by(mutex))
// Of a function: its caller holds the mutex (REQUIRES), or must not hold it (EXCLUDES).
#define LLORCH_REQUIRES(...) LLORCH_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define LLORCH_EXCLUDES(...) LLORCH_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// Of a mutex: taken after these, when a thread needs both.
#define LLORCH_ACQUIRED_AFTER(...) LLORCH_THREAD_ANNOTATION(acquired_after(__VA_ARGS__))

namespace llorch::base {

class LLORCH_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() LLORCH_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() LLORCH_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  // Tells the analysis what it cannot see, as in the body of a lambda that is called with the mutex
  // held. Does nothing.
  void assert_held() const LLORCH_THREAD_ANNOTATION(assert_capability(this)) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex from here to the end of the block.
class [[nodiscard]] LLORCH_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LLORCH_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() LLORCH_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits are loops in the caller, so that the analysis sees the condition:
//   while (items_.empty()) changed_.wait(mutex_);
//   while (!done_ && changed_.wait_until(mutex_, deadline)) {
//   }
class CondVar {
 public:
  // Lets the mutex go while it waits. Returns after a notify, sometimes without.
  void wait(Mutex& mutex) LLORCH_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }

  // As wait; false when `deadline` has passed.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      LLORCH_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = changed_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }

  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace llorch::base
