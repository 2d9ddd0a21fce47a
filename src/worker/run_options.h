// The command line of a worker program, with the environment and the user's file behind it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"
#include "base/log.h"
#include "contract/backend_kind.h"
#include "tensor/dtype.h"

namespace llorch::worker {

struct WorkerOptions {
  std::string worker_id;
  std::string model;
  std::uint16_t port = 0;
  std::vector<std::string> aliases;  // further names of the model for clients
  std::string chat_template;         // a built-in one's name or a file; empty: the model's own
  std::string callback_url;          // empty: nobody is told
  std::string callback_mark;  // from the environment: proves to whoever started us that it is us
  std::string host = "127.0.0.1";
  int threads = 0;           // 0: one for each core
  std::int32_t context = 0;  // 0: the model's own
  std::int32_t max_batch = 16;
  std::optional<std::uint64_t> kv_memory_bytes;  // none: follows max_batch, context and free memory
  tensor::DType kv_dtype = tensor::DType::F16;   // F16 or Q8_0
  std::vector<std::int32_t> gpu_devices = {0};   // of programs with a GPU; several share the layers
  bool plan_memory = false;                      // say what would be taken, and end
  std::int32_t max_queue = 64;
  std::chrono::seconds inference_timeout{300};
  std::string api_token_file;
  std::vector<std::string> allow_origins;
  base::LogFormat log_format = base::LogFormat::Pretty;
};

using base::Environment;

// "f16", "q8_0": how the command line and the wire name a cache's type.
std::string_view kv_name(tensor::DType dtype);

struct ParsedCommand {
  std::optional<WorkerOptions> options;  // none: print `text` and exit
  int exit_code = 0;
  std::string text;  // usage, version, or what is wrong
};

// A flag wins over LLORCH_<FLAG> in the environment, that over the key of the same name in section
// [worker] of the configuration file, that over the default. The file is $LLORCH_CONFIG, else
// config.toml in $LLORCH_HOME, $XDG_CONFIG_HOME/llorch or ~/.config/llorch; its absence is fine.
// `kind`: which worker; one with GPUs has --gpu-device.
// `is_terminal`: whether stderr is one; without --log-format that decides between pretty and JSON.
ParsedCommand parse_command(const contract::BackendKind& kind,
                            const std::vector<std::string>& arguments,
                            const Environment& environment, bool is_terminal);

}  // namespace llorch::worker
