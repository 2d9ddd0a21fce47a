#include "base/host_limits.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace llorch::base {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kUnknownMemory = std::int64_t{1} << 30;
// Version 1 writes the largest multiple of a page for "no limit".
constexpr std::int64_t kNoLimit = std::int64_t{1} << 62;
constexpr int kDepthMax = 64;

// The number in a file; nothing for "max" and for a file that is not there.
std::optional<std::int64_t> read_number(const fs::path& file) {
  std::ifstream stream(file);
  std::int64_t value = 0;
  if (!(stream >> value)) return std::nullopt;
  return value;
}

// The value behind a word in a file of "word value" lines, as memory.stat and meminfo are.
std::optional<std::int64_t> read_entry(const fs::path& file, std::string_view key) {
  std::ifstream stream(file);
  std::string word;
  std::int64_t value = 0;
  std::string rest;
  while (stream >> word >> value) {
    if (word == key) return value;
    std::getline(stream, rest);
  }
  return std::nullopt;
}

// A group of one hierarchy and those above it, up to where the hierarchy is mounted. The path that
// /proc names may not be visible from inside a container: then what is mounted there is the group.
std::vector<fs::path> groups_from(const fs::path& mount, const std::string& path) {
  std::vector<fs::path> groups;
  fs::path relative = fs::path(path).relative_path().lexically_normal();
  std::error_code ignored;
  for (int depth = 0; depth < kDepthMax && !relative.empty() && relative != "."; ++depth) {
    if (fs::is_directory(mount / relative, ignored)) groups.push_back(mount / relative);
    relative = relative.parent_path();
  }
  groups.push_back(mount);
  return groups;
}

template <class T>
void tighten(std::optional<T>& limit, T value) {
  if (!limit || value < *limit) limit = value;
}

struct MemoryFiles {
  std::string_view limit, used, unused_cache;
};
constexpr MemoryFiles kMemoryV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};
constexpr MemoryFiles kMemoryV2 = {"memory.max", "memory.current", "inactive_file"};

void read_memory(const fs::path& group, const MemoryFiles& files, CgroupLimits& limits) {
  const std::optional<std::int64_t> limit = read_number(group / files.limit);
  if (!limit || *limit < 0 || *limit >= kNoLimit) return;
  tighten(limits.memory_bytes, *limit);
  const std::int64_t used = read_number(group / files.used).value_or(0);
  const std::int64_t cache = read_entry(group / "memory.stat", files.unused_cache).value_or(0);
  tighten(limits.memory_free_bytes,
          std::clamp<std::int64_t>(*limit - used + std::max<std::int64_t>(cache, 0), 0, *limit));
}

void add_cpus(double quota, double period, CgroupLimits& limits) {
  if (quota > 0 && period > 0) tighten(limits.cpus, quota / period);
}

void read_cpus_v1(const fs::path& group, CgroupLimits& limits) {
  const std::int64_t quota = read_number(group / "cpu.cfs_quota_us").value_or(-1);
  const std::int64_t period = read_number(group / "cpu.cfs_period_us").value_or(0);
  add_cpus(static_cast<double>(quota), static_cast<double>(period), limits);
}

// "max 100000" or "150000 100000": microseconds of processor time per period.
void read_cpus_v2(const fs::path& group, CgroupLimits& limits) {
  std::ifstream stream(group / "cpu.max");
  double quota = 0;
  double period = 0;
  if (stream >> quota >> period) add_cpus(quota, period, limits);
}

bool has_controller(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == name) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

CgroupLimits read_cgroup_limits(const fs::path& root) {
  CgroupLimits limits;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream stream(root / "proc/self/cgroup");
  std::string line;
  // "4:memory:/user/x" in version 1, "0::/user/x" in version 2; both may be there.
  while (std::getline(stream, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string list = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (list.empty()) {
      for (const fs::path& group : groups_from(mounts, path)) {
        read_memory(group, kMemoryV2, limits);
        read_cpus_v2(group, limits);
      }
      continue;
    }
    // The hierarchy is mounted under the whole list's name, and the single ones are links to it.
    if (has_controller(list, "memory")) {
      for (const fs::path& group : groups_from(mounts / "memory", path))
        read_memory(group, kMemoryV1, limits);
    }
    if (has_controller(list, "cpu")) {
      for (const fs::path& group : groups_from(mounts / "cpu", path)) read_cpus_v1(group, limits);
    }
  }
  return limits;
}

HostMemory read_host_memory(const fs::path& root) {
  const fs::path meminfo = root / "proc/meminfo";
  HostMemory memory;
  memory.total_bytes = read_entry(meminfo, "MemTotal:").value_or(kUnknownMemory / 1024) * 1024;
  memory.free_bytes = read_entry(meminfo, "MemAvailable:").value_or(kUnknownMemory / 1024) * 1024;
  const CgroupLimits limits = read_cgroup_limits(root);
  memory.total_bytes = std::min(memory.total_bytes, limits.memory_bytes.value_or(INT64_MAX));
  memory.free_bytes = std::min(memory.free_bytes, limits.memory_free_bytes.value_or(INT64_MAX));
  return memory;
}

int usable_cores(const fs::path& root) {
  int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    cores = std::max(1, CPU_COUNT(&allowed));
  if (const std::optional<double> cpus = read_cgroup_limits(root).cpus)
    cores = std::clamp(static_cast<int>(std::ceil(std::min(*cpus, 1e6))), 1, cores);
  return cores;
}

}  // namespace llorch::base
