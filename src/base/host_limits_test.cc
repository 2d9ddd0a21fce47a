#include "base/host_limits.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string_view>

#include "support/test_paths.h"

namespace llorch::base {
namespace {

// A machine as /proc and /sys show it.
class Machine {
 public:
  Machine() {
    write("proc/meminfo", "MemTotal: 8000 kB\nMemFree: 100 kB\nMemAvailable: 6000 kB\n");
  }
  const std::filesystem::path& root() const { return folder_.path(); }
  void write(std::string_view path, std::string_view text) {
    const std::filesystem::path file = folder_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

 private:
  test::TempDir folder_;
};

TEST(HostLimits, WithoutControlGroupsTheMachineCounts) {
  const Machine machine;
  const HostMemory memory = read_host_memory(machine.root());
  EXPECT_EQ(memory.total_bytes, 8000 * 1024);
  EXPECT_EQ(memory.free_bytes, 6000 * 1024);
  const CgroupLimits limits = read_cgroup_limits(machine.root());
  EXPECT_FALSE(limits.cpus || limits.memory_bytes || limits.memory_free_bytes);
}

TEST(HostLimits, VersionTwoCountsTheTightestOfAllGroupsAbove) {
  Machine machine;
  machine.write("proc/self/cgroup", "0::/outer/inner\n");
  machine.write("sys/fs/cgroup/outer/memory.max", "4096000\n");
  machine.write("sys/fs/cgroup/outer/memory.current", "3000000\n");
  machine.write("sys/fs/cgroup/outer/memory.stat", "anon 1\ninactive_file 500000\n");
  machine.write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  machine.write("sys/fs/cgroup/outer/inner/cpu.max", "150000 100000\n");
  machine.write("sys/fs/cgroup/outer/cpu.max", "max 100000\n");
  const CgroupLimits limits = read_cgroup_limits(machine.root());
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_bytes, 4096000);
  EXPECT_EQ(limits.memory_free_bytes, 1596000);  // 4096000 - 3000000 + 500000
  EXPECT_EQ(read_host_memory(machine.root()).total_bytes, 4096000);
  EXPECT_EQ(read_host_memory(machine.root()).free_bytes, 1596000);
}

TEST(HostLimits, VersionOneHasAHierarchyForEachController) {
  Machine machine;
  machine.write("proc/self/cgroup",
                "9:name=systemd:/\n4:memory:/box/7\n2:cpu,cpuacct:/box\n0::/\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "77\n");
  machine.write("sys/fs/cgroup/memory/box/7/memory.limit_in_bytes", "2000000\n");
  machine.write("sys/fs/cgroup/memory/box/7/memory.usage_in_bytes", "1800000\n");
  machine.write("sys/fs/cgroup/memory/box/7/memory.stat",
                "inactive_file 9\ntotal_inactive_file 300000\n");
  machine.write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "50000\n");
  machine.write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
  const CgroupLimits limits = read_cgroup_limits(machine.root());
  EXPECT_EQ(limits.cpus, 0.5);
  EXPECT_EQ(limits.memory_bytes, 2000000);
  EXPECT_EQ(limits.memory_free_bytes, 500000);
  EXPECT_EQ(usable_cores(machine.root()), 1);
}

TEST(HostLimits, InsideAContainerThePathsOfTheHostAreNotThere) {
  Machine machine;
  machine.write("proc/self/cgroup", "5:memory:/docker/0123\n");
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000000\n");
  machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "400000\n");
  EXPECT_EQ(read_cgroup_limits(machine.root()).memory_bytes, 1000000);
  EXPECT_EQ(read_cgroup_limits(machine.root()).memory_free_bytes, 600000);
}

TEST(HostLimits, AGroupLargerThanTheMachineDoesNotMakeMemory) {
  Machine machine;
  machine.write("proc/self/cgroup", "0::/\n");
  machine.write("sys/fs/cgroup/memory.max", "99999999999\n");
  EXPECT_EQ(read_host_memory(machine.root()).total_bytes, 8000 * 1024);
  EXPECT_EQ(read_host_memory(machine.root()).free_bytes, 6000 * 1024);
}

TEST(HostLimits, UnreadableNumbersAreNoLimits) {
  Machine machine;
  machine.write("proc/self/cgroup", "nonsense\n0::/../../..\n3:memory:\n:::\n");
  machine.write("sys/fs/cgroup/memory.max", "-5\n");
  machine.write("sys/fs/cgroup/cpu.max", "0 0\n");
  const CgroupLimits limits = read_cgroup_limits(machine.root());
  EXPECT_FALSE(limits.cpus || limits.memory_bytes || limits.memory_free_bytes);
}

// A group that already uses more than its limit (it was lowered) has nothing, not less than that.
TEST(HostLimits, FreeMemoryIsNeverNegative) {
  Machine machine;
  machine.write("proc/self/cgroup", "0::/\n");
  machine.write("sys/fs/cgroup/memory.max", "1000\n");
  machine.write("sys/fs/cgroup/memory.current", "5000\n");
  EXPECT_EQ(read_cgroup_limits(machine.root()).memory_free_bytes, 0);
}

TEST(HostLimits, ThisMachineHasSomething) {
  EXPECT_GE(usable_cores(), 1);
  const HostMemory memory = read_host_memory();
  EXPECT_GT(memory.total_bytes, 0);
  EXPECT_GT(memory.free_bytes, 0);
  EXPECT_LE(memory.free_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace llorch::base
