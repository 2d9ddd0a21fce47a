// A backend whose device is the host: the half that is about memory.
#pragma once

#include <cstring>

#include "base/host_limits.h"
#include "compute/backend.h"
#include "compute/host_memory.h"

namespace llorch::compute {

class HostBackend : public Backend {
 public:
  std::int64_t free_bytes() const override { return base::read_host_memory().free_bytes; }
  Result<Buffer> allocate(std::int64_t bytes) override { return allocate_host(bytes); }
  void upload(std::span<const std::byte> host, void* device) override {
    if (!host.empty()) std::memcpy(device, host.data(), host.size());
  }
  void download(const void* device, std::span<std::byte> host) override {
    if (!host.empty()) std::memcpy(host.data(), device, host.size());
  }
  void synchronize() override {}
};

}  // namespace llorch::compute
