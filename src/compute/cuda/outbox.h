// Results on their way to the host while the next step runs: a copy engine in the stream of the
// steps would make the next one wait.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/cuda/queue.h"

namespace llorch::compute::cuda {

// Small results are put aside on the device, in the order of the ops; a stream of its own brings
// them over.
class Outbox {
 public:
  static Result<std::unique_ptr<Outbox>> make();
  ~Outbox();
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // False: too much for it.
  bool take(const void* device, std::span<std::byte> host, const Queue& queue);
  // Sends what was taken; `mark` is recorded behind that and behind all that the queue has.
  void send(cudaEvent_t mark, const Queue& queue);

 private:
  static constexpr std::size_t kBytes = 4096;  // of one sending
  struct Item {
    std::size_t offset;
    std::span<std::byte> host;
  };

  Outbox() = default;

  cudaStream_t stream_ = nullptr;
  cudaEvent_t taken_ = nullptr;
  std::array<cudaEvent_t, 2> sent_ = {};  // what was in that half has been brought over
  std::byte* memory_ = nullptr;           // two halves, which take turns
  std::size_t half_ = 0;
  std::size_t used_ = 0;
  std::vector<Item> items_;
};

}  // namespace llorch::compute::cuda
