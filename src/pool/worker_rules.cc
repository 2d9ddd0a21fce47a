#include "pool/worker_rules.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <system_error>

#include "base/utf8.h"
#include "catalog/look.h"
#include "contract/model_entry.h"

namespace llorch::pool {
namespace {

namespace fs = std::filesystem;

constexpr std::array kPassedVariables = {"PATH",
                                         "HOME",
                                         "LANG",
                                         "LC_ALL",
                                         "TZ",
                                         "LLORCH_HOME",
                                         "LLORCH_CONFIG",
                                         "LD_LIBRARY_PATH",
                                         "XDG_CONFIG_HOME",
                                         "CUDA_VISIBLE_DEVICES",
                                         "CUDA_HOME",
                                         "CUDA_DEVICE_ORDER",
                                         "CUDA_MODULE_LOADING",
                                         "NVIDIA_VISIBLE_DEVICES"};

const char* variable(const WorkerSurroundings& around, const char* name) {
  const char* value = around.environment ? around.environment(name) : nullptr;
  return value != nullptr && base::is_valid_utf8(value) ? value : nullptr;
}

fs::path cuda_cache(const WorkerSurroundings& around) {
  return around.home.cache / "cuda";
}

void allow_gpu(const WorkerSurroundings& around, base::ConfinementRules& rules) {
  std::error_code error;
  for (fs::directory_iterator at("/dev", error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with("nvidia")) rules.writable.push_back(at->path());
  }
  // The driver gives up when it cannot name its threads, below /proc/self/task: a folder that there
  // is no rule for before the process is there.
  for (const char* path : {"/dev/shm", "/dev/dxg", "/proc"}) rules.writable.emplace_back(path);
  // Where toolkits and drivers put their libraries and settings.
  for (const char* path : {"/usr/local", "/opt", "/usr/share/nvidia", "/etc/nvidia", "/run/nvidia"})
    rules.readable.emplace_back(path);
  rules.network->local_sockets = true;  // to the driver's own services
  if (around.home.cache.empty()) return;
  fs::create_directories(cuda_cache(around), error);
  rules.writable.push_back(cuda_cache(around));
}

}  // namespace

std::vector<std::string> worker_environment(const WorkerSurroundings& around) {
  std::vector<std::string> environment;
  for (const char* name : kPassedVariables) {
    if (const char* value = variable(around, name))
      environment.push_back(fmt::format("{}={}", name, value));
  }
  if (around.uses_gpu && !around.home.cache.empty())
    environment.push_back("CUDA_CACHE_PATH=" + cuda_cache(around).string());
  return environment;
}

base::ConfinementRules worker_rules(const WorkerSurroundings& around) {
  const char* libraries = variable(around, "LD_LIBRARY_PATH");
  base::ConfinementRules rules =
      base::rules_to_run(around.program, libraries != nullptr ? libraries : "");
  // The processor, the memory and the limits of both; the name localhost.
  // Not all of /proc: there are the environments of others.
  for (const char* path :
       {"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/vmstat", "/proc/sys", "/sys",
        "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf"})
    rules.readable.emplace_back(path);
  if (!around.home.config_file.empty()) rules.readable.push_back(around.home.config_file);
  if (around.model != contract::kBuiltinModel) catalog::allow_model(around.model, rules);
  if (around.uses_gpu) allow_gpu(around, rules);
  return rules;
}

}  // namespace llorch::pool
