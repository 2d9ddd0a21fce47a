#include "contract/backend_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace llorch::contract {
namespace {

constexpr BackendKind kKinds[] = {
    {.name = kCpu, .program = "llorch-cpud", .memory_type = "cpu", .needs_gpu = false},
    {.name = kCuda, .program = "worker-orcd", .memory_type = "vram-only", .needs_gpu = true},
};

}  // namespace

std::span<const BackendKind> backend_kinds() {
  return kKinds;
}

const BackendKind* find_backend_kind(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kKinds), std::end(kKinds),
                   [name](const BackendKind& kind) { return kind.name == name; });
  return found != std::end(kKinds) ? found : nullptr;
}

const BackendKind* find_device_kind(std::string_view device) {
  return find_backend_kind(device.substr(0, device.find(':')));
}

bool needs_gpu(std::string_view name) {
  const BackendKind* kind = find_backend_kind(name);
  return kind != nullptr && kind->needs_gpu;
}

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  for (const BackendKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::string device_name(const BackendKind& kind, int gpu) {
  return kind.needs_gpu ? fmt::format("{}:{}", kind.name, gpu) : std::string(kind.name);
}

}  // namespace llorch::contract
