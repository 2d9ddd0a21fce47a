// Nvml: what the NVIDIA driver's management library says of the GPUs here. Loaded at run time: a
// machine without it is a machine without GPUs, not a failure.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace llorch::base {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";  // as dlopen takes it

// What a GPU does not tell (power of some consumer cards, utilisation under MIG) stays absent.
struct GpuReading {
  std::string name;
  std::string uuid;
  std::int64_t vram_total_bytes = 0;
  std::int64_t vram_free_bytes = 0;
  std::optional<double> power_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> utilization;  // 0..1
};

// Any thread. A reading takes up to tens of milliseconds where a card sleeps.
class Nvml {
 public:
  // Unavailable, saying why, where there is no driver that answers.
  static Result<std::unique_ptr<Nvml>> load(const std::string& library = kNvmlLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const;  // empty: nobody says
  // In the order of their places on the bus. At most 255.
  Result<std::int32_t> num_gpus() const;
  Result<GpuReading> read(std::int32_t index) const;
  // By the place on the bus: "0000:1B:00.0". CUDA may number its devices otherwise.
  Result<GpuReading> read_at(const std::string& bus_id) const;
  // VRAM that one process holds; 0 when it holds none or nobody can say.
  std::int64_t vram_of_process(std::int32_t index, std::int64_t pid) const;
  // What the card has used since its driver was loaded; none where it does not count (before
  // Volta).
  std::optional<std::int64_t> millijoules(std::int32_t index) const;

 private:
  struct Functions;
  Nvml(void* library, std::unique_ptr<const Functions> functions);

  std::string error_text(int status) const;
  GpuReading describe(void* device) const;

  void* const library_;
  const std::unique_ptr<const Functions> functions_;
};

}  // namespace llorch::base
