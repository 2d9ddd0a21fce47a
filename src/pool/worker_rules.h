// What a worker program sees of this host: a few variables, its model, its libraries, and two
// ports. Private to pool/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/confinement.h"
#include "base/home.h"

namespace llorch::pool {

struct WorkerSurroundings {
  std::filesystem::path program;
  std::string model;  // a path, or "builtin"
  bool uses_gpu = false;
  base::Home home;
  base::Environment environment;  // null: nothing of it
};

// "NAME=value". No token, no proxy: a worker's own settings come as flags, and the configuration
// file is found through these.
std::vector<std::string> worker_environment(const WorkerSurroundings& around);

// The network is closed until ports are added.
base::ConfinementRules worker_rules(const WorkerSurroundings& around);

}  // namespace llorch::pool
