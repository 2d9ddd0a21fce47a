#include "compute/cuda/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "compute/cuda/check.h"

namespace llorch::compute::cuda {
namespace {

void free_device(void* memory) {
  // The buffer's device may not be the current one.
  cudaPointerAttributes attributes{};
  cudaError_t status = cudaPointerGetAttributes(&attributes, memory);
  if (status == cudaSuccess) status = cudaSetDevice(attributes.device);
  if (status == cudaSuccess) status = cudaFree(memory);
  // While the process ends the runtime may be gone, and the memory with it.
  if (status != cudaErrorCudartUnloading) check_cuda(status, "cudaFree");
}

Error out_of_memory(std::int64_t bytes) {
  cudaGetLastError();  // Not sticky: the device goes on.
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return {ErrorCode::DeviceOutOfMemory,
          fmt::format(
              "cannot allocate {} bytes of device memory: {} of {} bytes are free; take a smaller "
              "model or context, or another device",
              bytes, free_bytes, total_bytes)};
}

}  // namespace

Result<Buffer> allocate_device(std::int64_t bytes, cudaStream_t stream) {
  if (bytes < 0) {
    return Error{ErrorCode::InvalidArgument, fmt::format("cannot allocate {} bytes", bytes)};
  }
  const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, size);
  if (status == cudaErrorMemoryAllocation) return out_of_memory(bytes);
  if (status != cudaSuccess) {
    return Error{ErrorCode::DeviceFailed,
                 fmt::format("cudaMalloc of {} bytes: {}", bytes, cudaGetErrorString(status))};
  }
  check_cuda(cudaMemsetAsync(memory, 0, size, stream), "cudaMemsetAsync");
  return Buffer(memory, bytes, free_device);
}

Buffer pin_host(std::span<std::byte> memory) {
  if (memory.empty()) return {};
  const cudaError_t status =
      cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault);
  if (status != cudaSuccess) {
    cudaGetLastError();  // not sticky; copies are slower, that is all
    return {};
  }
  return Buffer(memory.data(), static_cast<std::int64_t>(memory.size()),
                [](void* pinned) { cudaHostUnregister(pinned); });
}

Result<std::unique_ptr<Staging>> Staging::make() {
  std::unique_ptr<Staging> staging(new Staging());
  void* memory = nullptr;
  const cudaError_t status = cudaMallocHost(&memory, 2 * kHalfBytes + kFetchBytes);
  if (status != cudaSuccess) {
    cudaGetLastError();
    return Error{ErrorCode::OutOfMemory,
                 fmt::format("cannot page-lock {} bytes of host memory: {}",
                             2 * kHalfBytes + kFetchBytes, cudaGetErrorString(status))};
  }
  staging->memory_ = static_cast<std::byte*>(memory);
  staging->fetched_ = staging->memory_ + 2 * kHalfBytes;
  for (cudaEvent_t& event : staging->read_) {
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  }
  return staging;
}

Staging::~Staging() {
  for (cudaEvent_t event : read_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (memory_ != nullptr) cudaFreeHost(memory_);
}

void Staging::switch_half(cudaStream_t stream) {
  check_cuda(cudaEventRecord(read_[half_], stream), "cudaEventRecord");
  half_ = 1 - half_;
  used_bytes_ = 0;
  // Returns at once when that half was never used.
  check_cuda(cudaEventSynchronize(read_[half_]), "cudaEventSynchronize");
}

void Staging::copy(std::span<const std::byte> host, void* device, cudaStream_t stream) {
  auto* to = static_cast<std::byte*>(device);
  while (!host.empty()) {
    if (used_bytes_ == kHalfBytes) switch_half(stream);
    const std::size_t bytes = std::min(host.size(), kHalfBytes - used_bytes_);
    std::byte* staged = memory_ + static_cast<std::size_t>(half_) * kHalfBytes + used_bytes_;
    std::memcpy(staged, host.data(), bytes);
    check_cuda(cudaMemcpyAsync(to, staged, bytes, cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
    used_bytes_ += bytes;
    host = host.subspan(bytes);
    to += bytes;
  }
}

void Staging::fetch(const void* device, std::span<std::byte> host, cudaStream_t stream) {
  // Small ones through page-locked memory; what is large is likely to be pinned itself.
  const bool is_small = host.size() <= kFetchBytes;
  check_cuda(cudaMemcpyAsync(is_small ? fetched_ : host.data(), device, host.size(),
                             cudaMemcpyDeviceToHost, stream),
             "download");
  check_cuda(cudaStreamSynchronize(stream), "download, or an op before it");
  if (is_small) std::memcpy(host.data(), fetched_, host.size());
}

}  // namespace llorch::compute::cuda
