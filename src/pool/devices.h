// What this host has: processor, memory, disk, GPUs. Facts read from the system at each call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/nvml.h"
#include "base/result.h"
#include "contract/pool_info.h"

namespace llorch::pool {

struct DeviceSources {
  std::string nvml_library = base::kNvmlLibrary;
  std::filesystem::path root = "/";  // in front of /proc, /sys and /etc
};

// The NVIDIA driver's management library, loaded at run time; without it there are no GPUs and
// HostInfo::gpu_note says why. Any thread.
class Devices {
 public:
  explicit Devices(DeviceSources sources = {});
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // `models`: the folder whose disk counts; it need not be there yet. Below 20 ms.
  contract::HostInfo read(const std::filesystem::path& models) const;

  // VRAM that one process holds on a GPU; 0 when it holds none or nobody can say.
  std::int64_t vram_of_process(std::int32_t gpu, std::int64_t pid) const;

 private:
  const DeviceSources sources_;
  std::string gpu_note_;              // why there is no nvml_
  std::unique_ptr<base::Nvml> nvml_;  // null: no driver
};

}  // namespace llorch::pool
