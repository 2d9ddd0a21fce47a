// What this process may use of the machine: cores by affinity and quota, memory by what is free and
// by its control groups (version 1 and 2).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace llorch::base {

// Limits of the control groups this process is in, each the tightest of a group and all above it.
// Nothing where there is none, or none that can be read.
struct CgroupLimits {
  std::optional<double> cpus;  // processor seconds per second
  std::optional<std::int64_t> memory_bytes;
  std::optional<std::int64_t> memory_free_bytes;  // caches that nobody uses counted as free
};

struct HostMemory {
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;  // that can be had without swapping
};

// `root` stands before /proc and /sys: "/", or a folder of a test.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

// The machine's memory, or the control group's where that is less. A system that does not say has
// 1 GiB.
HostMemory read_host_memory(const std::filesystem::path& root = "/");

// Threads worth starting, at least one.
int usable_cores(const std::filesystem::path& root = "/");

}  // namespace llorch::base
