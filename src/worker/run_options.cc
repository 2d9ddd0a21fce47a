#include "worker/run_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>

#include "api/daemon_options.h"
#include "base/settings.h"
#include "base/utf8.h"
#include "base/version.h"
#include "contract/backend_kind.h"
#include "contract/worker_info.h"
#include "template/chat_template.h"

namespace llorch::worker {
namespace {

// What may come from the environment or the file; an id, a model and a port belong to one process.
constexpr std::array<std::string_view, 11> kSettable = {"host",
                                                        "threads",
                                                        "ctx",
                                                        "max-batch",
                                                        "kv",
                                                        "kv-memory",
                                                        "max-queue",
                                                        "inference-timeout-sec",
                                                        "api-token-file",
                                                        "allow-origin",
                                                        "log-format"};

CLI::Validator worker_id_rule() {
  return {[](std::string& text) {
            const bool fits = !text.empty() && text.size() <= 64 &&
                              std::all_of(text.begin(), text.end(), [](char c) {
                                return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                                       c == '.' || c == '_' || c == '-';
                              });
            return fits ? std::string() : std::string("must be 1 to 64 of A-Z a-z 0-9 . _ -");
          },
          "ID"};
}

CLI::Validator alias_rule() {
  return {[](std::string& text) {
            const bool fits = !text.empty() && text.size() <= 256 && base::is_valid_utf8(text);
            return fits ? std::string() : std::string("must be 1 to 256 bytes of UTF-8");
          },
          "NAME"};
}

constexpr int kGpusMax = 16;  // of one worker

struct Raw {
  std::uint64_t kv_memory = 0;
  std::int64_t timeout_sec = 300;
  std::string log_format;
  std::string kv = "f16";
};

void describe(CLI::App& app, const contract::BackendKind& kind, bool is_plan,
              WorkerOptions& options, Raw& raw) {
  app.add_option("--worker-id", options.worker_id, "name of this worker")
      ->required(!is_plan)
      ->check(worker_id_rule());
  app.add_option("--model", options.model,
                 "a .gguf, .safetensors or PyTorch file, or a folder in Hugging Face layout")
      ->required();
  app.add_option("--port", options.port, "port to listen on; 0 takes a free one")
      ->check(CLI::Range(0, 65'535).description(""))
      ->required(!is_plan);
  app.add_option("--alias", options.aliases,
                 "a further name that clients may use for the model; may be given several times")
      ->check(alias_rule())
      ->allow_extra_args(false)
      ->take_all();
  app.add_option("--chat-template", options.chat_template,
                 "instead of the model's own: a file with a Jinja template, or one of " +
                     fmt::format("{}", fmt::join(jinja::builtin_template_names(), ", ")))
      ->type_name("NAME|FILE");
  app.add_option("--callback-url", options.callback_url, "told by POST when the worker is ready");
  app.add_option("--host", options.host, "address to listen on; any but loopback needs a token")
      ->capture_default_str();
  app.add_option("--threads", options.threads, "compute threads; 0 is one for each core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--ctx", options.context, "context in tokens; 0 is the model's own")
      ->check(CLI::Range(0, 16'777'216))
      ->capture_default_str();
  app.add_option("--max-batch", options.max_batch, "sequences that run at once")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--kv", raw.kv, "type of the key/value cache; q8_0 takes about half the memory")
      ->check(CLI::IsMember({"f16", "q8_0"}))
      ->capture_default_str();
  app.add_option("--kv-memory", raw.kv_memory,
                 "memory of the key/value cache, as 512MB or 2GB; default: from batch and context, "
                 "at most a quarter of what is free")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--max-queue", options.max_queue, "requests that may wait; more are refused (429)")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--inference-timeout-sec", raw.timeout_sec, "longest time for one request")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  app.add_option("--api-token-file", options.api_token_file,
                 "file with the bearer token that clients must send");
  app.add_option("--allow-origin", options.allow_origins,
                 "web pages that may use this worker, as https://app.example; may be repeated; * "
                 "(any) needs a token")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->type_name("ORIGIN");
  app.add_option("--log-format", raw.log_format, "default: pretty on a terminal, else json")
      ->check(CLI::IsMember({"json", "pretty"}));
  app.add_flag("--plan-memory", options.plan_memory,
               "print the memory that these flags would take as JSON, load nothing, end");
  if (kind.needs_gpu) {
    app.add_option("--gpu-device", options.gpu_devices,
                   "number of the GPU; several, as 0,1, share the model's layers")
        ->check(CLI::Range(0, 255))
        ->delimiter(',')
        ->expected(1, kGpusMax)
        ->allow_extra_args(false)
        ->type_name("N[,N...]")
        ->default_str("0");
  }
  app.set_version_flag("--version", std::string(base::version()));
}

}  // namespace

std::string_view kv_name(tensor::DType dtype) {
  return dtype == tensor::DType::Q8_0 ? "q8_0" : "f16";
}

ParsedCommand parse_command(const contract::BackendKind& kind,
                            const std::vector<std::string>& arguments,
                            const Environment& environment, bool is_terminal) {
  CLI::App app("Serves one language model over HTTP.", std::string(kind.program));
  WorkerOptions options;
  Raw raw;
  describe(app, kind, base::has_flag(arguments, "plan-memory"), options, raw);
  ParsedCommand parsed;
  const base::SettingNames settings = {"worker", "LLORCH_", kSettable};
  if (auto end = api::parse_daemon_command(app, kind.program, arguments, settings, environment)) {
    parsed.exit_code = end->exit_code;
    parsed.text = std::move(end->text);
    return parsed;
  }
  options.inference_timeout = std::chrono::seconds(raw.timeout_sec);
  const char* mark = environment(contract::kWorkerMarkVariable);
  if (mark != nullptr) options.callback_mark = mark;
  options.kv_dtype = raw.kv == "q8_0" ? tensor::DType::Q8_0 : tensor::DType::F16;
  if (raw.kv_memory > 0) options.kv_memory_bytes = raw.kv_memory;
  options.log_format = api::choose_log_format(raw.log_format, is_terminal);
  parsed.options = std::move(options);
  return parsed;
}

}  // namespace llorch::worker
