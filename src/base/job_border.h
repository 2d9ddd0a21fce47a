// The border of a thread's job: our code does not throw, but memory runs out and libraries do
// throw. What escapes a job fails that job and never ends the process.
#pragma once

#include <string_view>
#include <utility>
#include <variant>

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

// The same for a job that returns nothing.
template <class Job>
Status run_guarded(std::string_view doing, Job&& job) {
  return run_job<std::monostate>(doing, [&job] {
    job();
    return ok_status();
  });
}

}  // namespace llorch::base
