// A libnvidia-ml.so.1 without a GPU: the functions our programs use, with devices from the
// environment. Programs find it through LD_LIBRARY_PATH, tests by its path.
//
//   FAKE_NVML_INIT       what nvmlInit_v2 returns; default 0
//   FAKE_NVML_DEVICES    "name|total bytes|free bytes;…": one for each GPU
//   FAKE_NVML_PROCESSES  "gpu|pid|bytes;…"
//   FAKE_NVML_MILLIJOULES  "gpu|used since the driver was loaded;…"; those that are not in it do
//   not
//                          count
//   FAKE_NVML_QUIET      set: power, temperature and utilisation are not supported
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kInsufficientSize = 7;
constexpr int kDriverNotLoaded = 9;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::vector<std::vector<std::string>> table(const char* name) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(variable(name));
  for (std::string line; std::getline(lines, line, ';');) {
    std::vector<std::string>& row = rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, '|');) row.push_back(cell);
  }
  return rows;
}

// A handle is the index, counted from one.
unsigned index_of(void* device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}

int copy_text(const std::string& text, char* to, unsigned size) {
  if (text.size() >= size) return kInsufficientSize;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kSuccess;
}

int answer(unsigned* to, unsigned value) {
  if (std::getenv("FAKE_NVML_QUIET") != nullptr) return kNotSupported;
  *to = value;
  return kSuccess;
}

}  // namespace

// The names and structures are the driver's.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

struct nvmlMemory {
  unsigned long long total, free, used;
};
struct nvmlUtilization {
  unsigned gpu, memory;
};
struct nvmlProcess {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2() {
  const std::string result = variable("FAKE_NVML_INIT");
  return result.empty() ? kSuccess : std::atoi(result.c_str());
}
int nvmlShutdown() {
  return kSuccess;
}
const char* nvmlErrorString(int result) {
  return result == kDriverNotLoaded ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char* to, unsigned size) {
  return copy_text("580.65.06", to, size);
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(table("FAKE_NVML_DEVICES").size());
  return kSuccess;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= table("FAKE_NVML_DEVICES").size()) return kInvalidArgument;
  *device = reinterpret_cast<void*>(std::uintptr_t{index} + 1);
  return kSuccess;
}
// "0000:0N:00.0" is GPU N.
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  const std::string text = bus_id;
  const bool fits = text.size() == 12 && text.starts_with("0000:0") && text.ends_with(":00.0");
  if (!fits) return kInvalidArgument;
  return nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(text[6] - '0'), device);
}
int nvmlDeviceGetName(void* device, char* to, unsigned size) {
  return copy_text(table("FAKE_NVML_DEVICES").at(index_of(device)).at(0), to, size);
}
int nvmlDeviceGetUUID(void* device, char* to, unsigned size) {
  return copy_text("GPU-fake-" + std::to_string(index_of(device)), to, size);
}
int nvmlDeviceGetMemoryInfo(void* device, nvmlMemory* memory) {
  const std::vector<std::string> row = table("FAKE_NVML_DEVICES").at(index_of(device));
  memory->total = std::stoull(row.at(1));
  memory->free = std::stoull(row.at(2));
  memory->used = memory->total - memory->free;
  return kSuccess;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  return answer(milliwatts, 71'500);
}
int nvmlDeviceGetTemperature(void*, unsigned, unsigned* celsius) {
  return answer(celsius, 41);
}
int nvmlDeviceGetUtilizationRates(void*, nvmlUtilization* utilization) {
  return answer(&utilization->gpu, 25);
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  for (const std::vector<std::string>& row : table("FAKE_NVML_MILLIJOULES")) {
    if (std::stoul(row.at(0)) != index_of(device)) continue;
    *millijoules = std::stoull(row.at(1));
    return kSuccess;
  }
  return kNotSupported;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, nvmlProcess* out) {
  std::vector<nvmlProcess> found;
  for (const std::vector<std::string>& row : table("FAKE_NVML_PROCESSES")) {
    if (std::stoul(row.at(0)) == index_of(device))
      found.push_back({static_cast<unsigned>(std::stoul(row.at(1))), std::stoull(row.at(2)), 0, 0});
  }
  const bool fits = found.size() <= *count;
  *count = static_cast<unsigned>(found.size());
  if (!fits) return kInsufficientSize;
  std::copy(found.begin(), found.end(), out);
  return kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
