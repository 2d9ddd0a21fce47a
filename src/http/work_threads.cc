#include "http/work_threads.h"

#include "base/log.h"

namespace llorch::http {
namespace {

const base::Logger& logger() {
  static const base::Logger instance("http");
  return instance;
}

}  // namespace

WorkThreads::WorkThreads(int num_threads, std::size_t max_waiting) : max_waiting_(max_waiting) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { serve(); });
}

WorkThreads::~WorkThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  threads_.clear();  // joins
}

bool WorkThreads::push(Job job) {
  {
    const std::lock_guard lock(mutex_);
    // What nobody waits for takes no place in the queue.
    if (waiting_.size() >= max_waiting_)
      std::erase_if(waiting_, [](const Job& waiting) { return waiting.stop.stop_requested(); });
    if (stopping_ || waiting_.size() >= max_waiting_) return false;
    waiting_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void WorkThreads::serve() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    try {
      job.run();
    } catch (...) {  // run() has its own border: this one is for handing its result over
      logger().error("work failed", {{"what", base::error_of_current_exception("").message}});
    }
  }
}

}  // namespace llorch::http
