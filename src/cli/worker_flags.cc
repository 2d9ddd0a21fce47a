#include "cli/worker_flags.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "base/own_program.h"
#include "base/utf8.h"
#include "catalog/model_catalog.h"
#include "cli/fleet_command.h"
#include "cli/server_words.h"
#include "contract/backend_kind.h"
#include "contract/model_entry.h"

namespace llorch::cli {
namespace {

constexpr std::string_view kOwnPool = "own";

// The pool that --pool, --pool=URL or LLORCH_POOL mean.
Result<PoolTarget> pool_target(const std::string& flag, const base::Environment& environment) {
  const Result<base::Home> home = base::find_home(environment);
  if (!home.ok()) return home.error();
  PoolTarget target{environment, *home, flag == kOwnPool ? "" : flag, ""};
  if (Status good = complete_server_words(environment, "LLORCH_POOL",
                                          {target.url, target.ca_file, target.token});
      !good.ok())
    return good.error();
  return target;
}

}  // namespace

void add_worker_flags(CLI::App& command, WorkerArguments& arguments) {
  WorkerChoice& choice = arguments.choice;
  command
      .add_option(
          "-m,--model", choice.model,
          "a .gguf, .safetensors or PyTorch file, a folder in\nHugging Face layout, a name of "
          "the catalog, or builtin\n(the default)")
      ->type_name("MODEL");
  command.add_option("--threads", choice.threads, "threads of the worker")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
  command.add_option("--ctx", choice.context, "context length, at most the model's")
      ->type_name("N")
      ->check(CLI::Range(1, std::numeric_limits<std::int32_t>::max()).description(""));
  command
      .add_option("--worker", arguments.worker, "the worker's program (llorch-cpud beside llorch)")
      ->type_name("PATH");
  command
      .add_flag(
          "--pool{" + std::string(kOwnPool) + "}", arguments.pool,
          "let a worker of this host's pool answer, or of the pool at\n--pool=URL; -m is then "
          "an ID of its catalog, and the worker\nstays")
      ->type_name("URL");
  command.add_flag("--local", arguments.local,
                   "a worker of this command's own, also where an\norchestrator runs");
  command
      .add_option("--backend", choice.backend, "of the worker that is started: cpu (default), cuda")
      ->type_name("NAME")
      ->check(CLI::IsMember(contract::backend_names()).description(""));
}

Result<std::string> find_model_files(const std::string& model,
                                     const base::Environment& environment) {
  std::error_code ignored;
  if (std::filesystem::exists(model, ignored) || model.find('/') != std::string::npos) return model;
  const Result<base::Home> home = base::find_home(environment);
  if (!home.ok()) return model;
  const Result<contract::ModelEntry> entry =
      catalog::ModelCatalog(home->catalog_file()).find(model);
  if (!entry.ok()) {
    return Error{entry.error().code,
                 fmt::format("{} is no file, and {}", base::quoted(model), entry.error().message)};
  }
  if (entry->id == contract::kBuiltinModel) return model;
  if (!entry->downloaded) {
    return Error{
        ErrorCode::NotFound,
        fmt::format("{} is in the catalog, but its files are not here: `llorch-pool models "
                    "download {}` fetches them",
                    model, model)};
  }
  return entry->path;
}

Result<WorkerChoice> find_choice(const WorkerArguments& arguments,
                                 const base::Environment& environment) {
  WorkerChoice choice = arguments.choice;
  choice.worker = arguments.worker.empty()
                      ? base::own_folder() / contract::find_backend_kind(choice.backend)->program
                      : std::filesystem::path(arguments.worker);
  if (!arguments.pool.empty()) {
    Result<PoolTarget> target = pool_target(arguments.pool, environment);
    if (!target.ok()) return target.error();
    choice.pool = target.take();
  } else if (arguments.worker.empty()) {  // a program that the user names knows its own models
    Result<std::string> files = find_model_files(choice.model, environment);
    if (!files.ok()) return files.error();
    choice.model = files.take();
  }
  return choice;
}

Result<std::optional<FleetTarget>> find_fleet(const WorkerArguments& arguments,
                                              const base::Environment& environment) {
  const WorkerChoice& choice = arguments.choice;
  std::error_code ignored;
  const bool names_files =
      choice.model.find('/') != std::string::npos || std::filesystem::exists(choice.model, ignored);
  if (arguments.local || names_files || !arguments.worker.empty() || !arguments.pool.empty() ||
      choice.threads || choice.context || choice.backend != contract::kCpu)
    return std::optional<FleetTarget>();
  FleetContext context;
  context.environment = environment;
  if (Status good = complete(context); !good.ok()) return good.error();
  if (context.url.empty() && !read_orchestrator_address(context.home))
    return std::optional<FleetTarget>();
  return std::optional(target_of(context));
}

}  // namespace llorch::cli
