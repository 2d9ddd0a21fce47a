#include "pool/devices.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <thread>
#include <vector>

#include "base/host_limits.h"
#include "base/terminal.h"

namespace llorch::pool {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLineMax = 4096;

// The value of "key<separator>value" in the first line that begins with the key.
std::string find_line(const fs::path& file, std::string_view key, char separator) {
  std::ifstream stream(file);
  std::string line;
  for (int count = 0; count < 4096 && std::getline(stream, line); ++count) {
    if (!line.starts_with(key)) continue;
    const std::size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t\"", at + 1);
    if (begin == std::string::npos) return "";
    const std::size_t end = line.find_last_not_of(" \t\"\r");
    return base::printable(line.substr(begin, std::min(end + 1 - begin, kLineMax)));
  }
  return "";
}

std::string describe_os(const fs::path& root) {
  utsname system{};
  std::string kernel =
      ::uname(&system) == 0 ? fmt::format("{} {}", system.sysname, system.release) : "";
  std::string name = find_line(root / "etc/os-release", "PRETTY_NAME", '=');
  if (name.empty()) return kernel;
  return kernel.empty() ? name : fmt::format("{}, {}", name, kernel);
}

std::string describe_cpu(const fs::path& root) {
  const std::string name = find_line(root / "proc/cpuinfo", "model name", ':');
  return name.empty() ? "unknown processor" : name;
}

// What the worker's kernels are compiled for, best first (compute/cpu/kernels.cc).
std::string_view describe_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return "AVX-512";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "AVX2";
  if (__builtin_cpu_supports("sse4.2")) return "SSE4";
  return "x86-64";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "no SIMD";
#endif
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return base::printable(name.data());
}

// Of the folder, or the nearest above it that is there.
std::int64_t disk_free(fs::path folder) {
  std::error_code ignored;
  while (!fs::exists(folder, ignored) && folder.has_relative_path()) folder = folder.parent_path();
  if (folder.empty()) folder = ".";
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return 0;
  return static_cast<std::int64_t>(disk.f_bavail) * static_cast<std::int64_t>(disk.f_frsize);
}

std::vector<contract::GpuInfo> read_gpus(const base::Nvml& nvml, std::string& note) {
  std::vector<contract::GpuInfo> gpus;
  const Result<std::int32_t> count = nvml.num_gpus();
  if (!count.ok()) {
    note = count.error().message;
    return gpus;
  }
  if (*count == 0) note = "the NVIDIA driver is there, but no GPU";
  const std::string driver = nvml.driver_version();
  for (std::int32_t index = 0; index < *count; ++index) {
    Result<base::GpuReading> reading = nvml.read(index);
    if (!reading.ok()) {
      note = reading.error().message;
      continue;
    }
    contract::GpuInfo& gpu = gpus.emplace_back();
    gpu.index = index;
    gpu.driver = driver;
    gpu.name = std::move(reading->name);
    gpu.uuid = std::move(reading->uuid);
    gpu.vram_total_bytes = reading->vram_total_bytes;
    gpu.vram_free_bytes = reading->vram_free_bytes;
    gpu.power_watts = reading->power_watts;
    gpu.temperature_celsius = reading->temperature_celsius;
    gpu.utilization = reading->utilization;
  }
  return gpus;
}

}  // namespace

Devices::Devices(DeviceSources sources) : sources_(std::move(sources)) {
  Result<std::unique_ptr<base::Nvml>> nvml = base::Nvml::load(sources_.nvml_library);
  if (nvml.ok()) {
    nvml_ = nvml.take();
  } else {
    gpu_note_ = nvml.error().message;
  }
}
Devices::~Devices() = default;

contract::HostInfo Devices::read(const fs::path& models) const {
  contract::HostInfo host;
  host.hostname = host_name();
  host.os = describe_os(sources_.root);
  host.cpu = describe_cpu(sources_.root);
  host.isa = describe_isa();
  host.cores = base::usable_cores(sources_.root);
  host.threads = static_cast<std::int32_t>(std::max(1U, std::thread::hardware_concurrency()));
  const base::HostMemory memory = base::read_host_memory(sources_.root);
  host.memory_total_bytes = memory.total_bytes;
  host.memory_free_bytes = memory.free_bytes;
  host.disk_free_bytes = disk_free(models);
  host.gpu_note = gpu_note_;
  if (nvml_ != nullptr) host.gpus = read_gpus(*nvml_, host.gpu_note);
  return host;
}

std::int64_t Devices::vram_of_process(std::int32_t gpu, std::int64_t pid) const {
  if (nvml_ == nullptr || gpu < 0) return 0;
  return nvml_->vram_of_process(gpu, pid);
}

}  // namespace llorch::pool
