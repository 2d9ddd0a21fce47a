#include "contract/backend_kind.h"

#include <fmt/format.h>

#include <algorithm>

namespace llorch::contract {

const BackendKind* find_backend_kind(std::string_view name) {
  const auto* const found =
      std::find_if(kBackendKinds.begin(), kBackendKinds.end(),
                   [name](const BackendKind& kind) { return kind.name == name; });
  return found != kBackendKinds.end() ? found : nullptr;
}

const BackendKind* find_device_kind(std::string_view device) {
  return find_backend_kind(device.substr(0, device.find(':')));
}

bool needs_gpu(std::string_view name) {
  const BackendKind* kind = find_backend_kind(name);
  return kind != nullptr && kind->needs_gpu;
}

std::vector<std::string> backend_names() {
  return {kBackendNames.begin(), kBackendNames.end()};
}

std::string device_name(const BackendKind& kind, int gpu) {
  return kind.needs_gpu ? fmt::format("{}:{}", kind.name, gpu) : std::string(kind.name);
}

}  // namespace llorch::contract
