// What the programs of the laboratory share: checked calls, device arrays, timing, random numbers.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#define LAB_CHECK(call)                                                           \
  do {                                                                            \
    const cudaError_t status = (call);                                            \
    if (status != cudaSuccess) {                                                  \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
      std::exit(1);                                                               \
    }                                                                             \
  } while (false)

namespace lab {

inline constexpr double kCopyLimit = 4.28e12;  // bytes/s, read and written, measured elsewhere

template <class T>
class Array {
 public:
  Array() = default;
  explicit Array(std::size_t size) : size_(size) {
    LAB_CHECK(cudaMalloc(&data_, std::max<std::size_t>(size, 1) * sizeof(T)));
  }
  explicit Array(const std::vector<T>& host) : Array(host.size()) {
    LAB_CHECK(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  Array(Array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Array& operator=(Array&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Array() { cudaFree(data_); }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t bytes() const { return size_ * sizeof(T); }
  // Every byte 0xFF: a NaN for every float type, so that what was not written shows.
  void poison() { LAB_CHECK(cudaMemset(data_, 0xFF, bytes())); }
  std::vector<T> host() const {
    std::vector<T> out(size_);
    LAB_CHECK(cudaMemcpy(out.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// A small generator of our own, so that every run sees the same numbers.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  std::uint32_t bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  float uniform() { return static_cast<float>(bits()) * 0x1p-32F; }
  float normal() {
    const float r = std::sqrt(-2.0F * std::log(uniform() + 1e-9F));
    return r * std::cos(6.2831853F * uniform());
  }

 private:
  std::uint64_t state_;
};

// Fills device memory with random bytes: weights whose values do not matter.
static __global__ void scramble_kernel(std::uint32_t* data, std::size_t words, std::uint32_t seed,
                                       std::uint32_t mask, std::uint32_t set) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < words;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    std::uint32_t v = static_cast<std::uint32_t>(i) * 2654435761U + seed;
    v ^= v >> 16;
    v *= 0x7FEB352DU;
    v ^= v >> 15;
    v *= 0x846CA68BU;
    v ^= v >> 16;
    data[i] = (v & mask) | set;
  }
}
// As pairs of halves below 0.06 in magnitude.
inline void scramble(void* data, std::size_t bytes, std::uint32_t seed) {
  scramble_kernel<<<1024, 256>>>(static_cast<std::uint32_t*>(data), bytes / 4, seed, 0xABFFABFFU,
                                 0);
  LAB_CHECK(cudaGetLastError());
}

// Median time of one replay of what `enqueue` puts on a stream, as a graph; seconds.
inline double time_graph(const std::function<void(cudaStream_t)>& enqueue, int repeats = 30) {
  cudaStream_t stream = nullptr;
  LAB_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaGraph_t graph = nullptr;
  LAB_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  enqueue(stream);
  LAB_CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t ready = nullptr;
  LAB_CHECK(cudaGraphInstantiate(&ready, graph, 0));
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  LAB_CHECK(cudaEventCreate(&begin));
  LAB_CHECK(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) LAB_CHECK(cudaGraphLaunch(ready, stream));
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    LAB_CHECK(cudaEventRecord(begin, stream));
    LAB_CHECK(cudaGraphLaunch(ready, stream));
    LAB_CHECK(cudaEventRecord(end, stream));
    LAB_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    LAB_CHECK(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms * 1e-3);
  }
  LAB_CHECK(cudaEventDestroy(begin));
  LAB_CHECK(cudaEventDestroy(end));
  LAB_CHECK(cudaGraphExecDestroy(ready));
  LAB_CHECK(cudaGraphDestroy(graph));
  LAB_CHECK(cudaStreamDestroy(stream));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Launches with or without the programmatic edge to the kernel before.
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, int threads, cudaStream_t stream, bool dependent,
            Args... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = stream;
  cudaLaunchAttribute edge{};
  edge.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  edge.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &edge;
  config.numAttrs = dependent ? 1 : 0;
  LAB_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
}

}  // namespace lab
