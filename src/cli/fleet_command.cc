#include "cli/fleet_command.h"

#include <cstdio>
#include <utility>

#include "base/settings.h"
#include "base/terminal.h"
#include "cli/parse_words.h"
#include "cli/server_words.h"
#include "http/url.h"

namespace llorch::cli {
FleetTarget target_of(const FleetContext& context) {
  return {context.home, context.url, context.token, context.ca_file};
}

PoolTarget pool_of(const FleetContext& context) {
  return {context.environment, context.home, "", ""};
}

Status complete(FleetContext& context) {
  if (Status config = base::check_config(context.environment); !config.ok()) return config;
  Result<base::Home> home = base::find_home(context.environment);
  if (!home.ok()) return home.error();
  context.home = home.take();
  context.color = base::wants_color(stdout, context.environment("NO_COLOR"));
  if (Status good = complete_server_words(context.environment, "LLORCH_ORCHESTRATOR",
                                          {context.url, context.ca_file, context.token});
      !good.ok())
    return good;
  if (!context.token.empty() || !context.url.empty()) return ok_status();
  // On loopback and by the socket this user needs no key: one that was revoked must not stand in
  // the way.
  const auto address = read_orchestrator_address(context.home);
  const Result<http::Url> url = http::parse_url(address ? address->local_url : "");
  if (url.ok() && url->unix_path.empty() && !http::is_loopback(url->host))
    context.token = read_own_key(context.home).value_or("");
  return ok_status();
}

CLI::App* add_fleet_command(CLI::App& parent, FleetContext& context, const std::string& name,
                            const std::string& description, const char* footer,
                            std::function<int()> run) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->set_help_flag("-h,--help", "print this help");
  command->add_flag("--json", context.json_output, "print JSON for programs");
  command
      ->add_option("--orchestrator", context.url,
                   "the orchestrator to ask, when it is not this home's own")
      ->type_name("URL")
      ->check(url_rule());
  command
      ->add_option("--ca-file", context.ca_file,
                   "PEM file of the authority of its certificate, where this home does not know it")
      ->type_name("FILE");
  command->footer(footer);
  command->callback([&context, run = std::move(run)] { context.chosen = run; });
  return command;
}

}  // namespace llorch::cli
