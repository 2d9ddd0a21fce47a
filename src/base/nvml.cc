#include "base/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>

#include "base/terminal.h"

namespace llorch::base {
namespace {

constexpr unsigned kGpusMax = 255;
constexpr unsigned kProcessesMax = 1024;
constexpr int kSuccess = 0;
constexpr unsigned kTemperatureOfChip = 0;
constexpr unsigned long long kNotAvailable = ~0ULL;

template <class Ask>
std::string read_text(const Ask& ask) {
  std::array<char, 128> text{};
  if (ask(text.data(), static_cast<unsigned>(text.size() - 1)) != kSuccess) return "";
  return printable(text.data());
}

Error unavailable(std::string message) {
  return {ErrorCode::Unavailable, std::move(message)};
}

}  // namespace

// NVML's functions by their names in the library, with our own declarations of what they take.
struct Nvml::Functions {
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

  // The name of the first function that is not there; empty when all are.
  std::string_view bind(void* library) {
    std::string_view missing;
    const auto find = [&](auto& function, const char* symbol) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
      if (function == nullptr && missing.empty()) missing = symbol;
    };
    find(init, "nvmlInit_v2");
    find(shutdown, "nvmlShutdown");
    find(error_string, "nvmlErrorString");
    find(driver_version, "nvmlSystemGetDriverVersion");
    find(device_count, "nvmlDeviceGetCount_v2");
    find(device_by_index, "nvmlDeviceGetHandleByIndex_v2");
    find(device_by_bus_id, "nvmlDeviceGetHandleByPciBusId_v2");
    find(name, "nvmlDeviceGetName");
    find(uuid, "nvmlDeviceGetUUID");
    find(memory, "nvmlDeviceGetMemoryInfo");
    find(power, "nvmlDeviceGetPowerUsage");
    find(temperature, "nvmlDeviceGetTemperature");
    find(utilization, "nvmlDeviceGetUtilizationRates");
    find(compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    const std::string_view needed = missing;
    find(energy, "nvmlDeviceGetTotalEnergyConsumption");  // may be absent
    return needed;
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_by_index)(unsigned, Device*) = nullptr;
  int (*device_by_bus_id)(const char*, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;  // milliwatts
  int (*temperature)(Device, unsigned, unsigned*) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*compute_processes)(Device, unsigned*, Process*) = nullptr;
  int (*energy)(Device, unsigned long long*) = nullptr;  // millijoules
};

Nvml::Nvml(void* library, std::unique_ptr<const Functions> functions)
    : library_(library), functions_(std::move(functions)) {}

Nvml::~Nvml() {
  functions_->shutdown();
  ::dlclose(library_);
}

Result<std::unique_ptr<Nvml>> Nvml::load(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return unavailable(fmt::format("no NVIDIA driver: {} is not there", library));
  auto functions = std::make_unique<Functions>();
  if (const std::string_view missing = functions->bind(handle); !missing.empty()) {
    ::dlclose(handle);
    return unavailable(fmt::format("{} is too old: it has no {}", library, missing));
  }
  if (const int status = functions->init(); status != kSuccess) {
    const char* text = functions->error_string(status);
    const std::string reason = text != nullptr ? printable(text) : fmt::format("error {}", status);
    ::dlclose(handle);
    return unavailable(fmt::format("the NVIDIA driver does not answer: {}", reason));
  }
  return std::unique_ptr<Nvml>(new Nvml(handle, std::move(functions)));
}

std::string Nvml::error_text(int status) const {
  const char* text = functions_->error_string(status);
  return text != nullptr ? printable(text) : fmt::format("error {}", status);
}

std::string Nvml::driver_version() const {
  return read_text(
      [this](char* to, unsigned size) { return functions_->driver_version(to, size); });
}

Result<std::int32_t> Nvml::num_gpus() const {
  unsigned count = 0;
  if (const int status = functions_->device_count(&count); status != kSuccess) {
    return unavailable(
        fmt::format("the NVIDIA driver does not count its GPUs: {}", error_text(status)));
  }
  return static_cast<std::int32_t>(std::min(count, kGpusMax));
}

Result<GpuReading> Nvml::read(std::int32_t index) const {
  Functions::Device device = nullptr;
  const int status = functions_->device_by_index(static_cast<unsigned>(index), &device);
  if (status == kSuccess) return describe(device);
  return unavailable(fmt::format("GPU {} cannot be asked: {}", index, error_text(status)));
}

Result<GpuReading> Nvml::read_at(const std::string& bus_id) const {
  Functions::Device device = nullptr;
  const int status = functions_->device_by_bus_id(bus_id.c_str(), &device);
  if (status == kSuccess) return describe(device);
  return unavailable(fmt::format("GPU {} cannot be asked: {}", bus_id, error_text(status)));
}

GpuReading Nvml::describe(void* device) const {
  GpuReading gpu;
  gpu.name = read_text([&](char* to, unsigned size) { return functions_->name(device, to, size); });
  gpu.uuid = read_text([&](char* to, unsigned size) { return functions_->uuid(device, to, size); });
  Functions::Memory memory{};
  if (functions_->memory(device, &memory) == kSuccess) {
    gpu.vram_total_bytes = static_cast<std::int64_t>(memory.total);
    gpu.vram_free_bytes = static_cast<std::int64_t>(memory.free);
  }
  unsigned value = 0;
  if (functions_->power(device, &value) == kSuccess) gpu.power_watts = value / 1000.0;
  if (functions_->temperature(device, kTemperatureOfChip, &value) == kSuccess)
    gpu.temperature_celsius = value;
  Functions::Utilization utilization{};
  if (functions_->utilization(device, &utilization) == kSuccess)
    gpu.utilization = std::min(utilization.gpu, 100U) / 100.0;
  return gpu;
}

std::int64_t Nvml::vram_of_process(std::int32_t index, std::int64_t pid) const {
  Functions::Device device = nullptr;
  if (functions_->device_by_index(static_cast<unsigned>(index), &device) != kSuccess) return 0;
  // Some drivers of 2023 fill 32 bytes for each process; there is room for that.
  std::vector<Functions::Process> processes(std::size_t{kProcessesMax} * 2);
  unsigned count = kProcessesMax;
  if (functions_->compute_processes(device, &count, processes.data()) != kSuccess) return 0;
  for (unsigned i = 0; i < std::min(count, kProcessesMax); ++i) {
    if (processes[i].pid == pid && processes[i].used_bytes != kNotAvailable)
      return static_cast<std::int64_t>(processes[i].used_bytes);
  }
  return 0;
}

std::optional<std::int64_t> Nvml::millijoules(std::int32_t index) const {
  Functions::Device device = nullptr;
  unsigned long long value = 0;
  if (functions_->energy == nullptr ||
      functions_->device_by_index(static_cast<unsigned>(index), &device) != kSuccess ||
      functions_->energy(device, &value) != kSuccess)
    return std::nullopt;
  return static_cast<std::int64_t>(value);
}

}  // namespace llorch::base
