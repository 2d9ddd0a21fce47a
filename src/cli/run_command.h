// `llorch run`: a prompt goes to a worker of our own, the text streams out, nothing stays behind;
// or to a worker of a pool, which stays; or it is a job of the fleet.
#pragma once

#include <optional>
#include <string>

#include "cli/answering_worker.h"
#include "cli/fleet_client.h"
#include "contract/sampling_config.h"

namespace llorch::cli {

struct RunOptions {
  WorkerChoice worker;
  std::optional<FleetTarget> fleet;  // set: a job of the fleet, and of `worker` the model's name
  std::string prompt;                // valid UTF-8, not empty
  std::string system;                // what a chat model is told first; may be empty
  bool raw = false;                  // the prompt as it is, also for a model with a chat template
  contract::SamplingConfig sampling;
  bool json_output = false;
  bool verbose = false;  // the numbers at the end also without a terminal
  bool color = false;    // of standard output
};

// Text goes to stdout as it comes, everything else to stderr. Returns the exit code: 0, 1, or 130
// after Ctrl-C. Call it before the program makes threads.
int run_prompt(const RunOptions& options);

}  // namespace llorch::cli
