#include "worker/build_id.h"

#include <fmt/format.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include "base/version.h"
#include "worker/build_hash.h"  // made by cmake/build_hash.cmake

namespace llorch::worker {

std::string build_id() {
#ifdef __GLIBC__
  // sin, cos and exp are the system's.
  return fmt::format("{}+{}.glibc{}", base::version(), kBuildHash, ::gnu_get_libc_version());
#else
  return fmt::format("{}+{}", base::version(), kBuildHash);
#endif
}

}  // namespace llorch::worker
