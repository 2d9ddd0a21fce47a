// `llorch run`: a prompt goes to a worker of our own, the text streams out, nothing stays behind;
// or to a worker of a pool, which stays.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "cli/pool_client.h"
#include "contract/sampling_config.h"

namespace llorch::cli {

struct RunOptions {
  std::string model = "builtin";
  std::string prompt;  // valid UTF-8, not empty
  contract::SamplingConfig sampling;
  bool json_output = false;
  bool verbose = false;  // the numbers at the end also without a terminal
  std::optional<std::int64_t> threads;
  std::optional<std::int64_t> context;
  std::filesystem::path worker;  // the worker's program
  bool color = false;            // of standard output
  // Set: a ready worker of that pool answers, or one that it is asked to start. `model` is then an
  // id of its catalog.
  std::optional<PoolTarget> pool;
  std::string backend = "cpu";  // of a worker that the pool starts
};

// Text goes to stdout as it comes, everything else to stderr. Returns the exit code: 0, 1, or 130
// after Ctrl-C. Call it before the program makes threads.
int run_prompt(const RunOptions& options);

}  // namespace llorch::cli
