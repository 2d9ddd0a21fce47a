#include "compute/cuda/outbox.h"

#include <cstdint>

#include "compute/cuda/check.h"
#include "compute/cuda/device_info.h"
#include "compute/cuda/kernels.h"

namespace llorch::compute::cuda {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);

}  // namespace

Result<std::unique_ptr<Outbox>> Outbox::make() {
  std::unique_ptr<Outbox> outbox(new Outbox());
  void* memory = nullptr;
  const auto make_event = [](cudaEvent_t& event) {
    return cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  };
  cudaError_t status = cudaStreamCreateWithFlags(&outbox->stream_, cudaStreamNonBlocking);
  if (status == cudaSuccess) status = make_event(outbox->taken_);
  for (cudaEvent_t& event : outbox->sent_) {
    if (status == cudaSuccess) status = make_event(event);
  }
  if (status == cudaSuccess) status = cudaMalloc(&memory, 2 * kBytes);
  outbox->memory_ = static_cast<std::byte*>(memory);
  if (status != cudaSuccess) return device_failed("outbox", "cannot be made", status);
  return outbox;
}

Outbox::~Outbox() {
  if (stream_ != nullptr) {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  if (taken_ != nullptr) cudaEventDestroy(taken_);
  for (const cudaEvent_t event : sent_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (memory_ != nullptr) cudaFree(memory_);
}

bool Outbox::take(const void* device, std::span<std::byte> host, const Queue& queue) {
  if (host.size() % kWord != 0 || host.size() > kBytes - used_ ||
      reinterpret_cast<std::uintptr_t>(device) % kWord != 0)
    return false;
  // What was in this half is there since its mark was waited for. Returns at once then.
  if (used_ == 0) check_cuda(cudaEventSynchronize(sent_[half_]), "waiting for results");
  launch_copy_words(device, memory_ + half_ * kBytes + used_,
                    static_cast<std::int64_t>(host.size()), queue);
  items_.push_back({used_, host});
  used_ += host.size();
  return true;
}

void Outbox::send(cudaEvent_t mark, const Queue& queue) {
  if (items_.empty()) return check_cuda(cudaEventRecord(mark, queue.stream), "cudaEventRecord");
  check_cuda(cudaEventRecord(taken_, queue.stream), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(stream_, taken_, 0), "cudaStreamWaitEvent");
  for (const Item& item : items_) {
    check_cuda(cudaMemcpyAsync(item.host.data(), memory_ + half_ * kBytes + item.offset,
                               item.host.size(), cudaMemcpyDeviceToHost, stream_),
               "download");
  }
  check_cuda(cudaEventRecord(sent_[half_], stream_), "cudaEventRecord");
  check_cuda(cudaEventRecord(mark, stream_), "cudaEventRecord");
  items_.clear();
  half_ = 1 - half_;
  used_ = 0;
}

}  // namespace llorch::compute::cuda
