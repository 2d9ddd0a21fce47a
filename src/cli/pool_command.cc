#include "cli/pool_command.h"

#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "base/terminal.h"
#include "base/version.h"
#include "cli/completion.h"
#include "cli/manual.h"
#include "cli/output.h"
#include "cli/parse_words.h"
#include "cli/server_words.h"
#include "contract/api_token.h"

namespace llorch::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  llorch-pool models catalog              what can be fetched by name
  llorch-pool models download tinyllama
  llorch-pool worker spawn cpu --model tinyllama
  llorch-pool status
  llorch-pool worker stop --all

Commands that change workers need the pool manager and start it where it is not
running (`llorch-pool serve`); everything that only looks works without one.
--pool URL (or LLORCH_POOL) means a manager elsewhere, LLORCH_TOKEN or --token-file
the token it wants. LLORCH_HOME moves every file.

llorch-pool COMMAND --help shows a command's options and examples.
Exit code: 0; 1 when something failed; 2 for a mistake on the command line;
130 after Ctrl-C.)";

// What is known only once everything is parsed.
Status complete(PoolContext& context, const std::string& token_file) {
  if (Status config = base::check_config(context.environment); !config.ok()) return config;
  const Result<base::Home> home = base::find_home(context.environment);
  if (!home.ok()) return home.error();
  context.home = *home;
  context.color = base::wants_color(stdout, context.environment("NO_COLOR"));
  if (Status good = complete_server_words(context.environment, "LLORCH_POOL",
                                          {context.pool_url, context.ca_file, context.token});
      !good.ok() || token_file.empty())
    return good;
  Result<std::string> token = contract::read_api_token(token_file);
  if (!token.ok()) return token.error().in("--token-file");
  context.token = token.take();
  return ok_status();
}

}  // namespace

PoolTarget target_of(const PoolContext& context) {
  PoolTarget target{context.environment, context.home, context.pool_url, context.token};
  target.ca_file = context.ca_file;
  return target;
}

void run_when_named(CLI::App& command, PoolContext& context, std::function<int()> run) {
  command.callback([&context, run = std::move(run)] { context.chosen = run; });
}

int run_llorch_pool(int argc, const char* const* argv, const base::Environment& environment) {
  base::configure_log({base::LogFormat::Pretty, base::LogLevel::Error});
  PoolContext context;
  context.environment = environment;
  std::string token_file;
  CLI::App app("One host's models, workers and devices.", "llorch-pool");
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", "llorch-pool " + std::string(base::version()),
                       "print the version");
  app.require_subcommand(1);
  app.fallthrough();
  app.footer(kFooter);
  app.add_flag("--json", context.json_output, "print JSON for programs");
  app.add_option("--pool", context.pool_url, "the manager to ask, when it is not this host's own")
      ->type_name("URL")
      ->check(url_rule());
  app.add_option("--token-file", token_file, "file with the token that it wants")
      ->type_name("FILE");
  app.add_option("--ca-file", context.ca_file,
                 "PEM file of the authority of its certificate, where this home does not know it")
      ->type_name("FILE");
  CLI::App* models = app.add_subcommand("models", "which models are here, and getting more");
  models->require_subcommand(1);
  models->fallthrough();
  add_models_commands(*models, context);
  add_download_commands(*models, context);
  add_downloads_commands(*models, context);
  add_prune_commands(*models, context);
  add_verify_commands(*models, context);
  add_worker_commands(app, context);
  add_status_commands(app, context);
  add_plan_command(app, context);
  add_serve_commands(app, context);
  add_join_commands(app, context);
  add_rexec_command(app, context);
  const auto choose_without_home = [&context](std::function<int()> run) {
    context.needs_home = false;
    context.chosen = std::move(run);
  };
  add_completion_command(app, context.json_output, choose_without_home);
  add_manual_command(app, choose_without_home);
  if (const auto ended = parse_words(app, std::vector<std::string>(argv + 1, argv + argc)))
    return *ended;
  Status completed = context.needs_home ? complete(context, token_file) : ok_status();
  if (!completed.ok()) return fail(completed.error());
  return context.chosen ? context.chosen() : kUsage;
}

}  // namespace llorch::cli
