// The kinds of backends that a worker may have: the only place that names them.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::contract {

struct BackendKind {
  std::string_view name;         // in requests, in the catalog and in front of a device's number
  std::string_view program;      // the worker of that kind
  std::string_view memory_type;  // where a model lies, as /health says it
  bool needs_gpu = false;        // one worker has one GPU, named by its number
};

inline constexpr std::string_view kCpu = "cpu";
inline constexpr std::string_view kCuda = "cuda";

inline constexpr BackendKind kCpuKind = {
    .name = kCpu, .program = "llorch-cpud", .memory_type = "cpu", .needs_gpu = false};
inline constexpr BackendKind kCudaKind = {
    .name = kCuda, .program = "worker-orcd", .memory_type = "vram-only", .needs_gpu = true};
inline constexpr std::array kBackendKinds = {kCpuKind, kCudaKind};
inline constexpr auto kBackendNames = [] {
  std::array<std::string_view, kBackendKinds.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kBackendKinds[i].name;
  return names;
}();

// Null: there is none of that name.
const BackendKind* find_backend_kind(std::string_view name);
// Of a device: "cpu", "cuda:1". Null: of no kind that there is.
const BackendKind* find_device_kind(std::string_view device);
bool needs_gpu(std::string_view name);  // false of a kind that there is not

std::vector<std::string> backend_names();  // kBackendNames
// "cpu", "cuda:1".
std::string device_name(const BackendKind& kind, int gpu);

}  // namespace llorch::contract
