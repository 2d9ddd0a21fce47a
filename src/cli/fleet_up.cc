// llorch up and down without a host: this machine's orchestrator and pool, from nothing to an
// address that answers, and back.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "api/local_ca.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/process_table.h"
#include "base/terminal.h"
#include "cli/fleet_command.h"
#include "cli/output.h"
#include "cli/parse_words.h"
#include "contract/fleet_api.h"
#include "http/url.h"
#include "remote/ssh.h"

namespace llorch::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{20};
// An orchestrator that was told to end writes down what it has and lets go of its streams.
constexpr std::chrono::seconds kStopPatience{60};
constexpr std::chrono::seconds kLocalPatience{40};  // beyond what a pool that starts may take
constexpr std::chrono::seconds kMendPatience{5};    // for a poll that has failed to be made again
constexpr milliseconds kCountPatience{3'000};       // for the number of its jobs: it is only told

constexpr const char* kUpFooter = R"(Examples:
  llorch up
  llorch up anna                       a host of ~/.ssh/config, or user@address
  llorch up --json | jq -r .url

Without a host: starts the orchestrator and this host's pool where they do not run, and
says where they answer. What runs already is left as it is; a pool that `llorch down local`
took out of the fleet comes back into it. `llorch down` stops both.

With hosts: each is looked at through ssh (keys, aliases and jumps of ~/.ssh/config
hold; ssh itself asks for passwords and about new host keys), gets the programs that it
lacks below ~/.local/lib/llorch, and its pool is started on its own loopback. No port is
opened there. One that is up gets new programs so; its workers go on. Without a terminal,
--accept-new takes a host key nobody has seen before.)";

constexpr const char* kDownFooter = R"(Examples:
  llorch down
  llorch down --keep-pool
  llorch down anna

With hosts: stops their workers and pools. Without: stops the orchestrator, then every
worker and the pool manager of this host. Jobs that have not ended stay in the record,
and `llorch up` goes on with them; requests to /v1 end with an error, because they live
with their connection. Nothing to do is no failure.)";

// Whether the fleet still takes it. Nobody to ask: it is believed.
bool is_good_key(const FleetClient& client, const std::string& key) {
  const auto list = client.get<contract::KeyList>("/v2/keys");
  if (!list.ok()) return true;
  return std::any_of(list->keys.begin(), list->keys.end(), [&key](const contract::KeyView& one) {
    return !one.revoked && key.starts_with("llk_" + one.id + "_");
  });
}

// A key of this user, made once, and again when the fleet does not know it (any more); loopback
// needs none. A name that somebody has, as in a store that came from elsewhere, gets a number.
Result<std::string> find_or_make_key(const FleetContext& context, const FleetClient& client) {
  constexpr int kNamesMax = 20;
  const char* user = context.environment("USER");
  contract::KeyRequest request;
  request.scope = "admin";
  Result<contract::KeyView> made = Error{ErrorCode::Conflict, "no name is free"};
  for (int i = 1; i <= kNamesMax; ++i) {
    if (auto key = read_own_key(context.home); key && is_good_key(client, *key))
      return std::move(*key);
    request.name = user != nullptr && *user != '\0' ? user : "me";
    if (i > 1) request.name += fmt::format("-{}", i);
    made = client.post<contract::KeyView>("/v2/keys", contract::write_fields(request));
    if (made.ok() || made.error().code != ErrorCode::Conflict) break;
  }
  if (!made.ok()) return made.error().in("making a key");
  if (Status kept = base::write_file_atomically(key_file(context.home), made->key + "\n");
      !kept.ok())
    return kept.error().in("keeping the key");
  base::make_private(key_file(context.home));
  return std::move(made->key);
}

// A request that works as it stands.
std::string example_request(const std::string& url, const std::string& key,
                            const std::string& ca_file) {
  const Result<http::Url> parsed = http::parse_url(url);
  std::string flags;
  if (!ca_file.empty()) flags += fmt::format(" --cacert {}", shell_word(ca_file));
  if (parsed.ok() && !http::is_loopback(parsed->host))
    flags += fmt::format(" -H 'Authorization: Bearer {}'", key);
  return fmt::format(
      "curl{} {}/v1/completions -H 'Content-Type: application/json' -d "
      "'{{\"model\":\"builtin\",\"prompt\":\"Once upon a time\",\"max_tokens\":60}}'",
      flags, url);
}

// The home's authority, where an address needs it; empty: it does not.
std::string ca_for(const FleetContext& context, const std::string& url) {
  const std::filesystem::path file = api::ca_file(context.home);
  std::error_code ignored;
  const bool is_needed = url.starts_with("https://") && std::filesystem::exists(file, ignored);
  return is_needed ? file.string() : std::string();
}

// Where other machines reach the orchestrator of this home, beside the address that this one uses.
std::vector<std::string> urls_elsewhere(const FleetContext& context) {
  const std::optional<api::DaemonAddress> address = read_orchestrator_address(context.home);
  if (!address || !context.url.empty()) return {};
  return api::urls_for_others(*address);
}

// Until the orchestrator uses this host's pool, or says why it does not. One that was told to have
// no pool here has none.
Status await_local_pool(const FleetClient& client) {
  const auto begun = std::chrono::steady_clock::now();
  std::optional<std::string> first;  // what was told before may have been mended since
  bool was_asked = false;
  std::string state = "not known";
  while (std::chrono::steady_clock::now() < begun + kLocalPatience) {
    const Result<contract::HostView> local = client.get<contract::HostView>("/v2/hosts/local");
    if (!local.ok() && local.error().code == ErrorCode::NotFound) return ok_status();
    if (!local.ok()) return local.error();
    if (local->state == "connected") return ok_status();
    if (!was_asked && local->state != "starting") {  // it may have found none a while ago
      const auto asked = client.calls().post("/v2/hosts/local/up", {});
      if (!asked.ok()) return asked.error();
      was_asked = true;
      continue;
    }
    state = local->state;
    if (!first) first = local->reason;
    const bool is_old =
        local->reason == *first && std::chrono::steady_clock::now() < begun + kMendPatience;
    if (!local->reason.empty() && !is_old) {
      return Error{ErrorCode::Unavailable,
                   fmt::format("the orchestrator cannot use this host's pool: {}", local->reason)};
    }
    std::this_thread::sleep_for(kLook);
  }
  return Error{
      ErrorCode::DeadlineExceeded,
      fmt::format("the orchestrator does not use this host's pool yet ({}); `llorch hosts` "
                  "says how it is",
                  state)};
}

// Daemons live on without the command that starts them.
void leave_daemons() {
  complain(
      "interrupted; what was started goes on: `llorch status` shows it, `llorch down` ends it");
  std::_Exit(kInterrupted);
}

int up(const FleetContext& context) {
  if (!context.url.empty()) {  // one that is named and does not answer: nothing is started
    const Result<FleetClient> named = find_orchestrator(target_of(context));
    if (!named.ok()) return fail(named.error());
  }
  const base::InterruptWatch watch(leave_daemons);
  PoolTarget pool_target = pool_of(context);
  pool_target.stays = true;
  const bool pool_ran = find_pool(pool_target).ok();
  const Result<PoolClient> pool = find_or_start_pool(pool_target);
  if (!pool.ok()) return fail(pool.error());
  Result<FoundOrchestrator> found = find_or_start_orchestrator(target_of(context));
  if (!found.ok()) return fail(found.error());
  const FleetClient& client = found->client;
  if (target_of(context).url.empty()) {
    if (Status used = await_local_pool(client); !used.ok()) return fail(used.error());
  }
  const Result<std::string> key = find_or_make_key(context, client);
  if (!key.ok()) return fail(key.error());
  const std::string ca_file = ca_for(context, client.url());
  const std::vector<std::string> others = urls_elsewhere(context);
  if (context.json_output) {
    return print_json(json::Object{{"url", client.url()},
                                   {"other_urls", json::Array(others.begin(), others.end())},
                                   {"ca_file", ca_file},
                                   {"started", found->was_started},
                                   {"pool_url", pool->url()},
                                   {"pool_started", !pool_ran},
                                   {"key", *key},
                                   {"key_file", key_file(context.home).string()}});
  }
  const auto state = [](bool started) { return started ? "started" : "runs already"; };
  using Align = base::TextTable::Align;
  base::TextTable table({Align::Left, Align::Left, Align::Left});
  table.add_row({"orchestrator", client.url(), state(found->was_started)});
  for (const std::string& url : others) table.add_row({"", url, "for other machines"});
  table.add_row({"pool", pool->url(), state(!pool_ran)});
  std::string text = table.render(0, context.color);
  text += fmt::format("key           in {}, for you alone; this machine needs none\n\n  {}\n\n",
                      key_file(context.home).string(), *key);
  if (!ca_file.empty())
    text += "certificate   of this home's authority; `llorch ca` says how others trust it\n\n";
  text += "OpenAI's clients: base URL " + client.url() + "/v1. Or, as it stands:\n\n";
  text += example_request(client.url(), *key, ca_file) + "\n\n";
  text += fmt::format(
      "`llorch status` shows the whole house, so does {}/ in a browser; `llorch down` stops it.\n",
      client.url());
  return print(text);
}

// What has not ended, before it is left alone.
struct Unfinished {
  std::int64_t tasks = 0;     // stay in the record
  std::int64_t attached = 0;  // end with their connections
};

Result<std::optional<Unfinished>> stop_orchestrator(const FleetContext& context,
                                                    const std::stop_token& stop) {
  const std::optional<api::DaemonAddress> address = read_orchestrator_address(context.home);
  if (!address) return std::optional<Unfinished>();
  Unfinished unfinished;
  if (const auto status =
          FleetClient(target_of(context), *address)
              .get<contract::FleetStatus>("/v2/status", {.total = kCountPatience, .stop = stop});
      status.ok())
    unfinished = {status->queued + status->running - status->attached, status->attached};
  const Result<base::ProcessHandle> process = base::ProcessHandle::open(address->process);
  if (process.ok()) process->send_signal(SIGTERM);
  const auto until = std::chrono::steady_clock::now() + kStopPatience;
  while (process.ok() && base::is_running(address->process)) {
    if (stop.stop_requested()) return Error{ErrorCode::Cancelled, "interrupted"};
    if (std::chrono::steady_clock::now() > until) {
      return Error{ErrorCode::Unavailable,
                   fmt::format("the orchestrator (process {}) still runs after {} s; its log says "
                               "why: {}",
                               address->process.pid, kStopPatience.count(),
                               (context.home.logs() / "orchestrator.log").string())};
    }
    std::this_thread::sleep_for(kLook);
  }
  return std::optional(unfinished);
}

std::string tell_orchestrator(const std::optional<Unfinished>& stopped) {
  if (!stopped) return "no orchestrator is running\n";
  std::string text = "orchestrator stopped\n";
  if (stopped->tasks > 0) {
    text += fmt::format("  {} {} in the record; `llorch up` goes on with {}\n", stopped->tasks,
                        stopped->tasks == 1 ? "job stays" : "jobs stay",
                        stopped->tasks == 1 ? "it" : "them");
  }
  if (stopped->attached > 0) {
    text += fmt::format("  {} ended with an error: {} to open connections\n",
                        stopped->attached == 1 ? "1 request was"
                                               : fmt::format("{} requests were", stopped->attached),
                        stopped->attached == 1 ? "it belonged" : "they belonged");
  }
  return text;
}

struct DownArguments {
  std::vector<std::string> hosts;
  bool keep_pool = false;
};

int down(const FleetContext& context, const DownArguments& arguments) {
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  const Result<std::optional<Unfinished>> stopped = stop_orchestrator(context, stop.get_token());
  if (watch.interrupted()) return kInterrupted;
  if (!stopped.ok()) return fail(stopped.error());
  json::Object object{{"orchestrator", *stopped ? "stopped" : "not running"},
                      {"tasks", *stopped ? (*stopped)->tasks : 0},
                      {"attached", *stopped ? (*stopped)->attached : 0}};
  std::string text = tell_orchestrator(*stopped);
  const Result<PoolClient> pool =
      arguments.keep_pool ? Error{ErrorCode::NotFound, "left alone"} : find_pool(pool_of(context));
  object["pool"] = arguments.keep_pool ? "left alone" : "not running";
  if (!pool.ok()) {
    text += arguments.keep_pool ? "the pool is left alone\n" : "no pool manager is running\n";
  } else {
    base::StatusLine line(stderr);
    std::size_t most = 0;
    const Status ended = stop_pool(*pool, context.home, [&](std::size_t workers) {
      most = std::max(most, workers);
      line.show(fmt::format("stopping {} workers", workers));
      return !watch.interrupted();
    });
    line.clear();
    if (watch.interrupted()) return kInterrupted;
    if (!ended.ok()) return fail(ended.error());
    object["pool"] = "stopped";
    text += "pool stopped\n";
  }
  return context.json_output ? print_json(object) : print(text);
}

}  // namespace

void add_up_commands(CLI::App& app, FleetContext& context) {
  struct UpArguments {
    std::vector<std::string> hosts;
    bool accept_new = false;
  };
  auto wanted = std::make_shared<UpArguments>();
  CLI::App* up_command = add_fleet_command(
      app, context, "up", "start the orchestrator and this host's pool, or another host", kUpFooter,
      [&context, wanted] {
        return wanted->hosts.empty() ? up(context)
                                     : up_hosts(context, wanted->hosts, wanted->accept_new);
      });
  up_command->add_option("HOST", wanted->hosts, "as ssh knows it")
      ->type_name("")
      ->check(CLI::Validator(
          [](const std::string& name) {
            if (name.empty()) return std::string();  // is said of every argument alike
            const Result<remote::SshHost> host = remote::SshHost::make(name, "/run");
            return host.ok() ? std::string() : host.error().message;
          },
          ""));
  up_command->add_flag("--accept-new", wanted->accept_new,
                       "trust the key of a host that was never seen before");
  auto arguments = std::make_shared<DownArguments>();
  CLI::App* down_command = add_fleet_command(
      app, context, "down", "stop the orchestrator and this host's pool, or another host",
      kDownFooter, [&context, arguments] {
        return arguments->hosts.empty() ? down(context, *arguments)
                                        : down_hosts(context, arguments->hosts);
      });
  down_command->add_option("HOST", arguments->hosts, "only these")->type_name("");
  down_command->add_flag("--keep-pool", arguments->keep_pool,
                         "leave the pool manager and its workers running");
}

}  // namespace llorch::cli
