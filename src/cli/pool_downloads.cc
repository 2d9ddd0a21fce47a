// llorch-pool models downloads: what the pool manager is fetching; watching and cancelling it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/terminal.h"
#include "cli/download_view.h"
#include "cli/downloads_table.h"
#include "cli/find_pool.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "http/url.h"

namespace llorch::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  llorch-pool models downloads
  llorch-pool models downloads --all --json
  llorch-pool models downloads watch
  llorch-pool models downloads cancel dl-7d900e23-3

Without a manager: what other processes of this home are fetching. Ctrl-C in `watch` ends
the watching, not the download. What a cancelled download has brought is kept, and `models
download` goes on with it; `models prune` removes it.)";

struct Arguments {
  bool all = false;
  std::string id;
};

bool is_under_way(const json::Value& one) {
  const json::Value* ended = one.is_object() ? one.get_object().if_contains("ended_at") : nullptr;
  return ended != nullptr && ended->is_string() && ended->get_string().empty();
}

int list_downloads(const PoolContext& context, const Arguments& arguments) {
  Result<PoolClient> client = find_pool(target_of(context));
  if (!client.ok() && !context.pool_url.empty()) return fail(client.error());
  Result<json::Array> list = client.ok() ? client->get_list("/v2/downloads", "downloads")
                                         : read_downloads_under_way(context.home);
  if (!list.ok()) return fail(list.error());
  if (context.json_output) {
    json::Array shown;
    for (json::Value& one : *list) {
      if (arguments.all || is_under_way(one)) shown.push_back(std::move(one));
    }
    const json::Object object{{"downloads", std::move(shown)}};
    return print_json(object);
  }
  const std::string table =
      downloads_table(*list, arguments.all, std::chrono::system_clock::now(), context.color);
  return print(table.empty() ? "nothing is being downloaded\n" : table);
}

// Until it has ended; the code to leave with.
int watch_one(const PoolContext& context, PoolClient& client, const std::string& id,
              std::stop_token stop) {
  DownloadView view(::isatty(STDERR_FILENO) == 1);
  bool is_written = true;
  const Result<json::Object> outcome = pool_client::follow_download(
      client, id,
      [&](const contract::DownloadEvent& event) {
        if (context.json_output)
          is_written = write_out(json::serialize(contract::to_json(event)) + "\n") && is_written;
        else
          view.show(event);
      },
      stop);
  view.clear();
  if (stop.stop_requested()) return kInterrupted;
  if (!outcome.ok()) return fail(outcome.error());
  const std::string last = context.json_output ? json::serialize(*outcome) + "\n" : id + " done\n";
  return write_out(last) && is_written ? 0 : kFailure;
}

int watch_downloads(const PoolContext& context, const Arguments& arguments) {
  Result<PoolClient> client = find_pool(target_of(context));
  if (!client.ok()) return fail(client.error());
  std::stop_source stop;
  const base::InterruptWatch interrupts([&] { stop.request_stop(); });
  if (!arguments.id.empty()) return watch_one(context, *client, arguments.id, stop.get_token());
  int code = 0;
  for (bool has_watched = false;; has_watched = true) {
    const Result<json::Array> list = client->get_list("/v2/downloads", "downloads");
    if (!list.ok()) return fail(list.error());
    const auto next = std::find_if(list->begin(), list->end(), is_under_way);
    if (next == list->end()) {
      if (!has_watched && !context.json_output) write_err("nothing is being downloaded\n");
      return code;
    }
    const std::string id(json::view(next->at("id").as_string()));
    const int one = watch_one(context, *client, id, stop.get_token());
    if (one == kInterrupted) return one;
    code = std::max(code, one);
  }
}

int cancel_download(const PoolContext& context, const Arguments& arguments) {
  Result<PoolClient> client = find_pool(target_of(context));
  if (!client.ok()) return fail(client.error());
  const Result<json::Value> answer =
      client->remove("/v2/downloads/" + http::percent_encode(arguments.id));
  if (!answer.ok()) return fail(answer.error());
  if (context.json_output) return print_json(*answer);
  return print(fmt::format("{} cancelled; what has come is kept for the next time\n",
                           base::printable(arguments.id)));
}

}  // namespace

void add_downloads_commands(CLI::App& parent, PoolContext& context) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* downloads =
      parent.add_subcommand("downloads", "what is being fetched; watch it, cancel it");
  downloads->require_subcommand(0, 1);
  downloads->footer(kFooter);
  downloads->add_flag("-a,--all", arguments->all, "those that have ended, too");
  const auto add = [&](const char* name, const char* what,
                       int (*run)(const PoolContext&, const Arguments&)) {
    CLI::App* command = downloads->add_subcommand(name, what);
    run_when_named(*command, context,
                   [&context, arguments, run] { return run(context, *arguments); });
    return command;
  };
  add("watch", "show one until it ends, or all of them one after the other", watch_downloads)
      ->add_option("ID", arguments->id, "which one; without it all that are under way");
  add("cancel", "end one; what has come is kept", cancel_download)
      ->add_option("ID", arguments->id, "which one")
      ->required();
  downloads->callback([&context, arguments, downloads] {
    if (!downloads->get_subcommands().empty()) return;
    context.chosen = [&context, arguments] { return list_downloads(context, *arguments); };
  });
}

}  // namespace llorch::cli
