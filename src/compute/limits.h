// What this machine's cores, or a device, can do at best, measured in a fraction of a second: the
// numbers that speeds are held against. Both move with what else the machine does, so measure
// beside the work.
#pragma once

#include <string_view>

#include "base/result.h"

namespace llorch::compute {

struct HostLimits {
  double read_bytes_per_second = 0;  // all threads together, from memory, large pages
  double int8_ops_per_second = 0;    // products and sums of bytes, counted apart
  double float_ops_per_second = 0;   // the same of float32
  double bf16_ops_per_second = 0;    // of bfloat16; 0 where nothing multiplies them
  double meeting_seconds = 0;        // sending all threads off and waiting for them
};

// Takes 256 MB of memory or twice the last cache, 1 GB at most, while it lasts. num_threads >= 1.
Result<HostLimits> measure_host_limits(int num_threads);

// Of a backend by its name, as in create.h. What a device does not have stays 0; the products of
// its tensor cores count as float.
Result<HostLimits> measure_limits(std::string_view backend, int num_threads);

}  // namespace llorch::compute
