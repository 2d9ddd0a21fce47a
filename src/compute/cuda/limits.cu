// What the device can do at best: plain reading, and products of halves on its tensor cores.
#include "compute/cuda/check.h"
#include "compute/cuda/create_cuda.h"
#include "compute/cuda/device_memory.h"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/products.h"
#include "compute/cuda/tensor_core.cuh"

namespace llorch::compute {
namespace {

using cuda::check_cuda;

__global__ void read_all(const uint4* data, std::int64_t count, std::uint32_t* out) {
  std::uint32_t sum = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
#pragma unroll 8
  for (std::int64_t i = cuda::global_thread(); i < count; i += stride) {
    const uint4 v = cuda::load_once(data + i);
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0xFFFFFFFFU) *out = sum;  // keeps the loads
}

constexpr int kRounds = 4096;
constexpr int kSums = 8;  // independent ones, so that none waits
constexpr double kProductOps = 2.0 * 16 * 8 * 16;

__global__ void multiply_all(float* out) {
  float sums[kSums][4] = {};
  const std::uint32_t a[4] = {threadIdx.x, threadIdx.x, 0, 0};
  for (int i = 0; i < kRounds; ++i) {
#pragma unroll
    for (auto& sum : sums) cuda::mma16816(sum, a, 0, threadIdx.x);
  }
  float total = 0;
  for (const auto& sum : sums) total += sum[0];
  if (total == 1.0F) *out = total;
}

// The shortest of a few runs, by the device's own clock.
template <class Work>
double seconds_of(cudaStream_t stream, const Work& work) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  float best = 1e9F;
  constexpr int kRepeats = 5;
  for (int i = 0; i < kRepeats; ++i) {
    check_cuda(cudaEventRecord(begin, stream), "cudaEventRecord");
    work();
    check_cuda(cudaEventRecord(end, stream), "cudaEventRecord");
    check_cuda(cudaEventSynchronize(end), "measuring the device");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    best = ms < best ? ms : best;
  }
  check_cuda(cudaEventDestroy(begin), "cudaEventDestroy");
  check_cuda(cudaEventDestroy(end), "cudaEventDestroy");
  return static_cast<double>(best) * 1e-3;
}

}  // namespace

Result<HostLimits> measure_cuda_limits(int device) {
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  int processors = 0;
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
             "multiprocessors");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  constexpr std::int64_t kBytes = std::int64_t{512} << 20;  // several times the cache
  HostLimits limits;
  Result<Buffer> memory = cuda::allocate_device(kBytes + 256, stream);
  if (memory.ok()) {
    auto* data = static_cast<std::byte*>(memory->data());
    const auto blocks = static_cast<unsigned>(processors * 8);
    limits.read_bytes_per_second =
        static_cast<double>(kBytes) / seconds_of(stream, [&] {
          read_all<<<blocks, 256, 0, stream>>>(reinterpret_cast<const uint4*>(data + 256),
                                               kBytes / 16, reinterpret_cast<std::uint32_t*>(data));
        });
    if (cuda::find_tensor_cores().mma) {
      constexpr unsigned kThreads = 256;
      const double ops = kProductOps * kRounds * kSums * (kThreads / 32.0) * blocks;
      limits.float_ops_per_second =
          ops / seconds_of(stream, [&] {
            multiply_all<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<float*>(data));
          });
    }
  }
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  if (!memory.ok()) return memory.error();
  return limits;
}

}  // namespace llorch::compute
