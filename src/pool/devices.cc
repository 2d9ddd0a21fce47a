#include "pool/devices.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/host_limits.h"
#include "base/terminal.h"

namespace llorch::pool {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLineMax = 4096;
constexpr unsigned kGpusMax = 255;
constexpr unsigned kProcessesMax = 1024;

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

}  // namespace

// NVML's functions by their names in the library, with our own declarations of what they take.
class Devices::Nvml {
 public:
  // Null, and `why` says so, where there is no driver that answers.
  static std::unique_ptr<Nvml> load(const std::string& library, std::string& why) {
    void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      why = fmt::format("no NVIDIA driver: {} is not there", library);
      return nullptr;
    }
    std::unique_ptr<Nvml> nvml(new Nvml(handle));
    if (const std::string_view missing = nvml->bind(); !missing.empty()) {
      why = fmt::format("{} is too old: it has no {}", library, missing);
      return nullptr;
    }
    if (const int status = nvml->init_(); status != kSuccess) {
      why = fmt::format("the NVIDIA driver does not answer: {}", nvml->error_text(status));
      return nullptr;
    }
    nvml->is_initialized_ = true;
    return nvml;
  }
  ~Nvml() {
    if (is_initialized_) shutdown_();
    ::dlclose(handle_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::vector<contract::GpuInfo> gpus(std::string& note) const {
    std::vector<contract::GpuInfo> gpus;
    unsigned count = 0;
    if (const int status = device_count_(&count); status != kSuccess) {
      note = fmt::format("the NVIDIA driver does not count its GPUs: {}", error_text(status));
      return gpus;
    }
    if (count == 0) note = "the NVIDIA driver is there, but no GPU";
    const std::string driver =
        read_text([this](char* to, unsigned size) { return driver_version_(to, size); });
    for (unsigned index = 0; index < std::min(count, kGpusMax); ++index) {
      Device device = nullptr;
      if (const int status = device_by_index_(index, &device); status != kSuccess) {
        note = fmt::format("GPU {} cannot be asked: {}", index, error_text(status));
        continue;
      }
      contract::GpuInfo gpu = describe(device);
      gpu.index = static_cast<std::int32_t>(index);
      gpu.driver = driver;
      gpus.push_back(std::move(gpu));
    }
    return gpus;
  }

  std::int64_t vram_of_process(unsigned gpu, std::int64_t pid) const {
    Device device = nullptr;
    if (device_by_index_(gpu, &device) != kSuccess) return 0;
    // Some drivers of 2023 fill 32 bytes for each process; there is room for that.
    std::vector<Process> processes(std::size_t{kProcessesMax} * 2);
    unsigned count = kProcessesMax;
    if (compute_processes_(device, &count, processes.data()) != kSuccess) return 0;
    for (unsigned i = 0; i < std::min(count, kProcessesMax); ++i) {
      if (processes[i].pid == pid && processes[i].used_bytes != kNotAvailable)
        return static_cast<std::int64_t>(processes[i].used_bytes);
    }
    return 0;
  }

 private:
  using Device = void*;
  struct Memory {
    unsigned long long total, free, used;
  };
  struct Utilization {
    unsigned gpu, memory;  // percent
  };
  struct Process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
  };
  static constexpr int kSuccess = 0;
  static constexpr unsigned kTemperatureOfChip = 0;
  static constexpr unsigned long long kNotAvailable = ~0ULL;

  explicit Nvml(void* handle) : handle_(handle) {}

  // The name of the first function that is not there; empty when all are.
  std::string_view bind() {
    std::string_view missing;
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle_, name));
      if (function == nullptr && missing.empty()) missing = name;
    };
    find(init_, "nvmlInit_v2");
    find(shutdown_, "nvmlShutdown");
    find(error_string_, "nvmlErrorString");
    find(driver_version_, "nvmlSystemGetDriverVersion");
    find(device_count_, "nvmlDeviceGetCount_v2");
    find(device_by_index_, "nvmlDeviceGetHandleByIndex_v2");
    find(name_, "nvmlDeviceGetName");
    find(uuid_, "nvmlDeviceGetUUID");
    find(memory_, "nvmlDeviceGetMemoryInfo");
    find(power_, "nvmlDeviceGetPowerUsage");
    find(temperature_, "nvmlDeviceGetTemperature");
    find(utilization_, "nvmlDeviceGetUtilizationRates");
    find(compute_processes_, "nvmlDeviceGetComputeRunningProcesses_v3");
    return missing;
  }

  std::string error_text(int status) const {
    const char* text = error_string_(status);
    return text != nullptr ? base::printable(text) : fmt::format("error {}", status);
  }

  template <class Ask>
  static std::string read_text(const Ask& ask) {
    std::array<char, 128> text{};
    if (ask(text.data(), static_cast<unsigned>(text.size() - 1)) != kSuccess) return "";
    return base::printable(text.data());
  }

  // What a GPU does not tell (power of some consumer cards, utilisation under MIG) stays absent.
  contract::GpuInfo describe(Device device) const {
    contract::GpuInfo gpu;
    gpu.name = read_text([&](char* to, unsigned size) { return name_(device, to, size); });
    gpu.uuid = read_text([&](char* to, unsigned size) { return uuid_(device, to, size); });
    Memory memory{};
    if (memory_(device, &memory) == kSuccess) {
      gpu.vram_total_bytes = static_cast<std::int64_t>(memory.total);
      gpu.vram_free_bytes = static_cast<std::int64_t>(memory.free);
    }
    unsigned value = 0;
    if (power_(device, &value) == kSuccess) gpu.power_watts = value / 1000.0;
    if (temperature_(device, kTemperatureOfChip, &value) == kSuccess)
      gpu.temperature_celsius = value;
    Utilization utilization{};
    if (utilization_(device, &utilization) == kSuccess)
      gpu.utilization = std::min(utilization.gpu, 100U) / 100.0;
    return gpu;
  }

  void* handle_;
  bool is_initialized_ = false;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  const char* (*error_string_)(int) = nullptr;
  int (*driver_version_)(char*, unsigned) = nullptr;
  int (*device_count_)(unsigned*) = nullptr;
  int (*device_by_index_)(unsigned, Device*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  int (*power_)(Device, unsigned*) = nullptr;  // milliwatts
  int (*temperature_)(Device, unsigned, unsigned*) = nullptr;
  int (*utilization_)(Device, Utilization*) = nullptr;
  int (*compute_processes_)(Device, unsigned*, Process*) = nullptr;
};

Devices::Devices(DeviceSources sources)
    : sources_(std::move(sources)), nvml_(Nvml::load(sources_.nvml_library, gpu_note_)) {}
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
  if (nvml_ != nullptr) host.gpus = nvml_->gpus(host.gpu_note);
  return host;
}

std::int64_t Devices::vram_of_process(std::int32_t gpu, std::int64_t pid) const {
  if (nvml_ == nullptr || gpu < 0) return 0;
  return nvml_->vram_of_process(static_cast<unsigned>(gpu), pid);
}

}  // namespace llorch::pool
