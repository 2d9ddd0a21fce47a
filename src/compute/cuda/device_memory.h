// Device memory that frees itself, and page-locked host memory to fill it from.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "compute/weight.h"

namespace llorch::compute::cuda {

// Zeroed (in the order of the stream) memory of the current device. Too little memory is
// DeviceOutOfMemory and names the bytes asked for and free; the buffer may outlive the stream.
Result<Buffer> allocate_device(std::int64_t bytes, cudaStream_t stream);

// Page-locked as long as the result lives, which is empty where the system does not allow it.
Buffer pin_host(std::span<std::byte> memory);

// Copies to the device through two page-locked halves: filling one while the device still reads the
// other. The source is free for reuse as soon as copy() returns, and copy() waits for the device
// only when both halves are full.
class Staging {
 public:
  static Result<std::unique_ptr<Staging>> make();
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  void copy(std::span<const std::byte> host, void* device, cudaStream_t stream);
  // The other way; waits until all is there.
  void fetch(const void* device, std::span<std::byte> host, cudaStream_t stream);

 private:
  static constexpr std::size_t kHalfBytes = std::size_t{8} << 20;

  Staging() = default;
  void switch_half(cudaStream_t stream);

  static constexpr std::size_t kFetchBytes = std::size_t{64} << 10;

  std::byte* memory_ = nullptr;   // 2 * kHalfBytes, page-locked
  std::byte* fetched_ = nullptr;  // kFetchBytes, likewise
  cudaEvent_t read_[2] = {};      // the device has read that half
  int half_ = 0;                  // being filled
  std::size_t used_bytes_ = 0;    // of that half
};

}  // namespace llorch::compute::cuda
