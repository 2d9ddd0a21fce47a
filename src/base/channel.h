// Channel: a bounded, closable queue between threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace llorch::base {

// Any number of threads push and pop. Items are moved; what is refused is destroyed.
template <class T>
class Channel {
 public:
  explicit Channel(std::size_t capacity) : capacity_(capacity) {}  // 0: it takes nothing

  // Never waits. False when it is full or closed.
  [[nodiscard]] bool try_push(T item) LLORCH_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    has_items_.notify_one();
    return true;
  }

  // Waits while it is full. False when it is closed.
  [[nodiscard]] bool push(T item) LLORCH_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      while (!closed_ && items_.size() >= capacity_) has_room_.wait(mutex_);
      if (closed_) return false;
      items_.push_back(std::move(item));
    }
    has_items_.notify_one();
    return true;
  }

  // The oldest item, waiting for one. Nothing: closed and empty.
  std::optional<T> pop() LLORCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (!closed_ && items_.empty()) has_items_.wait(mutex_);
    return take_first();
  }

  // The same, until then at the latest. Nothing: none came, or closed and empty.
  std::optional<T> pop_until(std::chrono::steady_clock::time_point deadline)
      LLORCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (!closed_ && items_.empty() && has_items_.wait_until(mutex_, deadline)) {
    }
    return take_first();
  }

  // The oldest item, if there is one.
  std::optional<T> try_pop() LLORCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return take_first();
  }

  // All that is queued, oldest first.
  std::deque<T> take_all() LLORCH_EXCLUDES(mutex_) {
    std::deque<T> items;
    const MutexLock lock(mutex_);
    items.swap(items_);
    has_room_.notify_all();
    return items;
  }

  // Drops queued items that nobody wants any more.
  template <class Predicate>
  void erase_if(Predicate is_unwanted) LLORCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::erase_if(items_, is_unwanted);
    has_room_.notify_all();
  }

  // No more pushes; what is queued can still be taken. Wakes everybody. Idempotent.
  void close() LLORCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    closed_ = true;
    has_items_.notify_all();
    has_room_.notify_all();
  }

  // Closes it and drops what is queued.
  void close_and_clear() LLORCH_EXCLUDES(mutex_) {
    close();
    take_all();
  }

  bool is_closed() const LLORCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return closed_;
  }

  // Advice: another thread may change it at once.
  bool is_full() const LLORCH_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return items_.size() >= capacity_;
  }

 private:
  std::optional<T> take_first() LLORCH_REQUIRES(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    has_room_.notify_one();
    return item;
  }

  const std::size_t capacity_;
  mutable Mutex mutex_;
  CondVar has_items_;
  CondVar has_room_;
  std::deque<T> items_ LLORCH_GUARDED_BY(mutex_);
  bool closed_ LLORCH_GUARDED_BY(mutex_) = false;
};

}  // namespace llorch::base
