#include "cli/pool_command.h"

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <string>

#include "base/log.h"
#include "base/terminal.h"
#include "base/version.h"
#include "cli/output.h"

namespace llorch::cli {

int run_llorch_pool(int argc, const char* const* argv, const base::Environment& environment) {
  base::configure_log({base::LogFormat::Pretty, base::LogLevel::Error});
  PoolContext context;
  context.environment = environment;
  CLI::App app("One host's models, workers and devices.", "llorch-pool");
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", "llorch-pool " + std::string(base::version()));
  app.require_subcommand(1);
  app.fallthrough();
  app.add_flag("--json", context.json_output, "print JSON for programs");
  CLI::App* models = app.add_subcommand("models", "which models are here, and getting more");
  models->require_subcommand(1);
  models->fallthrough();
  add_models_commands(*models, context);
  add_download_commands(*models, context);
  add_verify_commands(*models, context);
  add_worker_commands(app, context);
  add_status_commands(app, context);
  add_plan_command(app, context);
  add_serve_commands(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  const Result<base::Home> home = base::find_home(environment);
  if (!home.ok()) {
    complain(home.error().message);
    return kFailure;
  }
  context.home = *home;
  if (const char* token = environment("LLORCH_TOKEN")) context.token = token;
  context.color = base::wants_color(stdout, environment("NO_COLOR"));
  return context.chosen ? context.chosen() : kUsage;
}

}  // namespace llorch::cli
