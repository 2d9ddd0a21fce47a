// `llorch chat`: a conversation with a model, at a terminal or through a pipe.
#pragma once

#include <optional>
#include <string>

#include "cli/answering_worker.h"
#include "cli/fleet_client.h"
#include "contract/sampling_config.h"

namespace llorch::cli {

struct ChatOptions {
  WorkerChoice worker;
  std::optional<FleetTarget> fleet;  // set: jobs of the fleet, and of `worker` the model's name
  std::string system;                // what the model is told first; may be empty
  contract::SamplingConfig sampling;
  bool json_output = false;  // one object for each answer instead of its text
  bool color = false;        // of standard output
};

// Answers go to stdout as they come, everything else to stderr, or on a terminal between them.
// Returns the exit code: 0 at the end of the input, 1 when the model cannot chat or an answer that
// came through a pipe failed, 130 after Ctrl-C at the prompt. Call it before the program makes
// threads.
int run_chat(const ChatOptions& options);

}  // namespace llorch::cli
