#include "base/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace llorch::base {
namespace {

constexpr rlim_t kEnough = 65'536;
constexpr std::size_t kUsual = 1024;  // where the system does not say
constexpr std::size_t kConnectionsMax = 8192;

}  // namespace

std::size_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kUsual;
  const rlim_t wanted = std::min(limit.rlim_max, kEnough);
  if (limit.rlim_cur < wanted) {
    rlimit raised = limit;
    raised.rlim_cur = wanted;
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<std::size_t>(std::min(limit.rlim_cur, kEnough));
}

std::size_t connections_within(std::size_t limit, std::size_t reserve) {
  const std::size_t kept = std::min(reserve, limit / 2);
  return std::clamp<std::size_t>(limit - kept, 1, kConnectionsMax);
}

}  // namespace llorch::base
