// The flags that say who answers a command: a worker of its own, a pool's, or the fleet. Private to
// cli/.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>

#include "base/home.h"
#include "base/result.h"
#include "cli/answering_worker.h"
#include "cli/fleet_client.h"

namespace llorch::cli {

// What the parser fills for every command that asks a worker.
struct WorkerArguments {
  WorkerChoice choice;
  std::string worker;
  std::string pool;    // empty: a worker of our own; kOwnPool or a URL
  bool local = false;  // never the fleet
};

void add_worker_flags(CLI::App& command, WorkerArguments& arguments);

// Which worker it is, once everything is parsed.
Result<WorkerChoice> find_choice(const WorkerArguments& arguments,
                                 const base::Environment& environment);

// What a worker of our own loads: a path as it is, else the files of that name in the catalog.
Result<std::string> find_model_files(const std::string& model,
                                     const base::Environment& environment);

// The orchestrator of this home, where it runs and nothing was said that only a worker of our own
// can do: files, a program, threads, a context, a pool, a backend. An error: the environment or the
// configuration says something that cannot be.
Result<std::optional<FleetTarget>> find_fleet(const WorkerArguments& arguments,
                                              const base::Environment& environment);

}  // namespace llorch::cli
