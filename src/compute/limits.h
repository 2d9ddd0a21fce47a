// What this machine's cores can do at best, measured in a fraction of a second: the numbers that
// speeds are held against. Both move with what else the machine does, so measure beside the work.
#pragma once

#include "base/result.h"

namespace llorch::compute {

struct HostLimits {
  double read_bytes_per_second = 0;  // all threads together, from memory, large pages
  double int8_ops_per_second = 0;    // products and sums of bytes, counted apart
  double float_ops_per_second = 0;   // the same of float32
  double meeting_seconds = 0;        // sending all threads off and waiting for them
};

// Takes 256 MB of memory or twice the last cache, 1 GB at most, while it lasts. num_threads >= 1.
Result<HostLimits> measure_host_limits(int num_threads);

}  // namespace llorch::compute
