// A backend whose device is the host: the half that is about memory.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/check.h"
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
  void fill_in_ids(const TensorView& ids, const TensorView& found) override {
    auto* id = static_cast<std::int32_t*>(ids.data);
    for (std::int64_t row = 0; row < ids.dims[0]; ++row) {
      if (id[row] >= 0) continue;
      CHECK(-1 - id[row] < found.dims[0]);
      id[row] = std::max(0, static_cast<const std::int32_t*>(found.data)[-1 - id[row]]);
    }
  }
};

}  // namespace llorch::compute
