// What `llorch jobs submit` was told, and its two ways: one prompt, or a file of them. Private to
// cli/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/ask_fleet.h"
#include "cli/fleet_command.h"

namespace llorch::cli {

struct SubmitArguments {
  FleetQuestion question;
  std::string prompt;
  std::string system;
  bool chat = false;
  std::string pin;
  std::string deadline;
  std::string file;
  std::string out;
  std::int32_t parallel = 8;
  std::int32_t max_tokens = 400;
};

// "30s", "5m", "2h", "90": seconds. InvalidArgument.
Result<std::int64_t> read_duration_ms(std::string_view text);

// One line of a file of prompts: a JSON text, or an object with "prompt" or "messages", fields of
// the request beside it, and an "id" that its result gets back.
struct PromptLine {
  json::Object body;  // of POST /v2/tasks
  json::Value id;     // null: it has none
  bool is_chat = false;
};
Result<PromptLine> read_prompt_line(std::string_view line, const FleetQuestion& question);

// How far a file of prompts is.
struct BatchCounts {
  std::size_t begun = 0;
  std::size_t done = 0;
  std::size_t failed = 0;
  std::size_t cancelled = 0;
  bool is_unwritable = false;
  std::string refused;  // why the first that waits is not taken yet; empty: none waits

  std::size_t answered() const { return done - failed - cancelled; }
};
// The line that shows it on a terminal.
std::string batch_progress(const BatchCounts& counts, std::size_t total, double seconds);

// Asks every line of the file and writes the results in its order; where those go to a file,
// `json_output` prints their numbers. The exit code.
int submit_file(const FleetClient& client, const SubmitArguments& arguments, bool json_output);

}  // namespace llorch::cli
