// Which build this worker is, as far as its answers depend on it.
#pragma once

#include <string>

namespace llorch::worker {

// The version, a hash of everything that ids depend on (sources from weight file to sampler,
// compiler and flags) and the C library whose functions are used: "0.1.0+4f6c21d09ab3.glibc2.36".
// The same for every build of the same sources with the same tools.
std::string build_id();

}  // namespace llorch::worker
