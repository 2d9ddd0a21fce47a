// The border of a thread's job: our code does not throw, but memory runs out and libraries do
// throw. What escapes a job fails that job and never ends the process.
#pragma once

#include <string_view>
#include <utility>

#include "base/result.h"

namespace llorch::base {

// Inside a catch block: OutOfMemory for bad_alloc, else Internal. `doing`: "while answering".
Error error_of_current_exception(std::string_view doing);

// What `job` returns, or the error of what it threw.
template <class T, class Job>
Result<T> run_job(std::string_view doing, Job&& job) {
  try {
    return std::forward<Job>(job)();
  } catch (...) {
    return error_of_current_exception(doing);
  }
}

}  // namespace llorch::base
