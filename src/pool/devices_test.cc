#include "pool/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "support/test_paths.h"

namespace llorch::pool {
namespace {

using ::testing::AnyOf, ::testing::HasSubstr, ::testing::IsEmpty;

// Variables that the fake driver reads, gone at the end of the scope.
class Script {
 public:
  explicit Script(std::map<std::string, std::string> variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~Script() {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

 private:
  std::map<std::string, std::string> variables_;
};

DeviceSources fake() {
  return {.nvml_library = LLORCH_FAKE_NVML};
}

TEST(Devices, DescribeThisHost) {
  const contract::HostInfo host = Devices().read("/");
  EXPECT_FALSE(host.hostname.empty());
  EXPECT_THAT(host.os, HasSubstr("Linux"));
  EXPECT_FALSE(host.cpu.empty());
  EXPECT_THAT(host.isa, AnyOf("AVX-512", "AVX2", "SSE4", "x86-64", "NEON", "no SIMD"));
  EXPECT_GE(host.cores, 1);
  EXPECT_GE(host.threads, host.cores);
  EXPECT_GT(host.memory_total_bytes, 0);
  EXPECT_GT(host.memory_free_bytes, 0);
  EXPECT_GT(host.disk_free_bytes, 0);
  EXPECT_EQ(host.gpus.empty(), !host.gpu_note.empty());
}

TEST(Devices, ReadProcessorSystemAndLimitsFromFiles) {
  const test::TempDir root;
  for (const std::string_view folder : {"etc", "proc/self", "sys/fs/cgroup/box"})
    std::filesystem::create_directories(root / folder);
  std::ofstream(root / "etc/os-release") << "NAME=x\nPRETTY_NAME=\"Tiny \x1B[31mOS 3\"\n";
  std::ofstream(root / "proc/cpuinfo") << "processor\t: 0\nmodel name\t: Abacus 9000\nmodel\t: 1\n";
  std::ofstream(root / "proc/meminfo") << "MemTotal: 4000 kB\nMemAvailable: 3000 kB\n";
  std::ofstream(root / "proc/self/cgroup") << "0::/box\n";
  std::ofstream(root / "sys/fs/cgroup/box/memory.max") << "1024000\n";
  std::ofstream(root / "sys/fs/cgroup/box/cpu.max") << "100000 100000\n";
  const Devices devices({.nvml_library = "libdoes-not-exist.so", .root = root.path()});
  const contract::HostInfo host = devices.read(root / "models/not/there/yet");
  EXPECT_THAT(host.os, HasSubstr("OS 3, Linux "));
  EXPECT_EQ(host.os.find('\x1B'), std::string::npos) << "a file must not command a terminal";
  EXPECT_EQ(host.cpu, "Abacus 9000");
  EXPECT_EQ(host.cores, 1);
  EXPECT_EQ(host.memory_total_bytes, 1024000);
  EXPECT_EQ(host.memory_free_bytes, 1024000);
  EXPECT_GT(host.disk_free_bytes, 0) << "the nearest folder that is there counts";
  EXPECT_THAT(host.gpus, IsEmpty());
  EXPECT_EQ(host.gpu_note, "no NVIDIA driver: libdoes-not-exist.so is not there");
}

TEST(Devices, ListEveryGpu) {
  const Script script(
      {{"FAKE_NVML_DEVICES", "NVIDIA H200|150754820096|150000000000;Small|8000|3000"},
       {"FAKE_NVML_PROCESSES", "1|77|500;0|77|900;0|78|18446744073709551615"}});
  const Devices devices(fake());
  const contract::HostInfo host = devices.read("/");
  ASSERT_EQ(host.gpus.size(), 2U);
  EXPECT_EQ(host.gpu_note, "");
  EXPECT_EQ(host.gpus[0].index, 0);
  EXPECT_EQ(host.gpus[0].name, "NVIDIA H200");
  EXPECT_EQ(host.gpus[0].uuid, "GPU-fake-0");
  EXPECT_EQ(host.gpus[0].driver, "580.65.06");
  EXPECT_EQ(host.gpus[0].vram_total_bytes, 150754820096);
  EXPECT_EQ(host.gpus[0].vram_free_bytes, 150000000000);
  EXPECT_EQ(host.gpus[0].power_watts, 71.5);
  EXPECT_EQ(host.gpus[0].temperature_celsius, 41.0);
  EXPECT_EQ(host.gpus[0].utilization, 0.25);
  EXPECT_EQ(host.gpus[1].index, 1);
  EXPECT_EQ(host.gpus[1].vram_free_bytes, 3000);

  EXPECT_EQ(devices.vram_of_process(0, 77), 900);
  EXPECT_EQ(devices.vram_of_process(1, 77), 500);
  EXPECT_EQ(devices.vram_of_process(1, 78), 0);
  EXPECT_EQ(devices.vram_of_process(0, 78), 0) << "a driver that cannot say";
  EXPECT_EQ(devices.vram_of_process(9, 77), 0);
  EXPECT_EQ(devices.vram_of_process(-1, 77), 0);
}

TEST(Devices, WhatAGpuDoesNotTellIsAbsent) {
  const Script script(std::map<std::string, std::string>{{"FAKE_NVML_DEVICES", "Old card|100|50"},
                                                         {"FAKE_NVML_QUIET", "1"}});
  const contract::HostInfo host = Devices(fake()).read("/");
  ASSERT_EQ(host.gpus.size(), 1U);
  EXPECT_FALSE(host.gpus[0].power_watts || host.gpus[0].temperature_celsius ||
               host.gpus[0].utilization);
}

TEST(Devices, SayWhyThereIsNoGpu) {
  {
    const Script script(std::map<std::string, std::string>{{"FAKE_NVML_INIT", "9"}});
    const Devices devices(fake());
    EXPECT_EQ(devices.read("/").gpu_note, "the NVIDIA driver does not answer: Driver Not Loaded");
    EXPECT_EQ(devices.vram_of_process(0, 1), 0);
  }
  EXPECT_EQ(Devices(fake()).read("/").gpu_note, "the NVIDIA driver is there, but no GPU");
  EXPECT_THAT(Devices({.nvml_library = "libc.so.6"}).read("/").gpu_note,
              HasSubstr("libc.so.6 is too old: it has no nvmlInit_v2"));
}

}  // namespace
}  // namespace llorch::pool
