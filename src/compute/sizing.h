// A backend that has no memory and computes nothing: it counts what a real one would take. Loading
// a model onto it runs the code that loads the model for real, so a plan and what follows it cannot
// disagree.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "compute/backend.h"
#include "compute/create.h"

namespace llorch::compute {

// Buffers are address ranges that nobody may read or write; uploads go nowhere; an op is a CHECK.
class SizingBackend : public Backend {
 public:
  // Everything taken so far: buffers, scratch, and weights, be they copied or used in the file.
  virtual std::int64_t bytes() const = 0;
  // What the device's own runtime takes before the first buffer: on the device, and in the process
  // beside it. Both 0 where host memory is the device.
  virtual std::int64_t context_bytes() const = 0;
  virtual std::int64_t host_bytes() const = 0;
};

// "cpu" or "cuda:N", as make_backend. Needs no device, and no build that has one.
Result<std::unique_ptr<SizingBackend>> make_sizing_backend(std::string_view name,
                                                           const BackendOptions& options = {});

}  // namespace llorch::compute
