#include "http/work_threads.h"

#include "base/log.h"
#include "base/thread.h"

namespace llorch::http {
namespace {

const base::Logger& logger() {
  static const base::Logger instance("http");
  return instance;
}

}  // namespace

WorkThreads::WorkThreads(int num_threads, std::size_t max_waiting) : waiting_(max_waiting) {
  for (int i = 0; i < num_threads; ++i)
    threads_.push_back(base::start_thread("http-work", [this] { serve(); }));
}

WorkThreads::~WorkThreads() {
  waiting_.close_and_clear();
  threads_.clear();  // joins
}

bool WorkThreads::push(Job job) {
  // What nobody waits for takes no place in the queue.
  if (waiting_.is_full())
    waiting_.erase_if([](const Job& waiting) { return waiting.stop.stop_requested(); });
  return waiting_.try_push(std::move(job));
}

void WorkThreads::serve() {
  while (const std::optional<Job> job = waiting_.pop()) {
    // run() has its own border: this one is for handing its result over.
    const Status done = base::run_guarded("while answering", job->run);
    if (!done.ok()) logger().error("work failed", {{"what", done.error().message}});
  }
}

}  // namespace llorch::http
