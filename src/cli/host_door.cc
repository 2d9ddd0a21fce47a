#include "cli/host_door.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <tuple>
#include <utility>

#include "base/foreground.h"
#include "base/own_program.h"
#include "base/process.h"
#include "base/thread.h"
#include "cli/output.h"
#include "remote/run_folder.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;
using remote::FirstContact;
using remote::HostSession;
using remote::SshHost;
using std::chrono::milliseconds;
using OnOutput = std::function<void(std::string_view bytes)>;

constexpr milliseconds kCommandPatience{3'600'000};  // a download may take its time
constexpr std::size_t kOutputBytes = std::size_t{1} << 20;

bool has_terminal() {
  return ::isatty(STDIN_FILENO) != 0 && ::isatty(STDERR_FILENO) != 0;
}

// Lets ssh ask in the user's terminal, once. Where it lets us in without a question from now on,
// the connection that came of it makes room for ours, which lives as long as we do; else it stays,
// and is shared.
Status ask_in_terminal(const HostDoor& door, const SshHost& host, HostSession& session) {
  const Result<base::ExitStatus> asked =
      base::run_in_foreground(door.ssh, remote::terminal_master_words(host));
  if (!asked.ok()) return asked.error();
  if (!asked->success()) {
    return Error{ErrorCode::Unavailable, fmt::format("ssh {} {}", host.name(), asked->describe())};
  }
  const auto probed =
      remote::run_ssh(door.ssh, {.words = remote::probe_words(host), .input_file = {}});
  if (probed.ok() && probed->success())
    std::ignore = remote::run_ssh(door.ssh, {.words = remote::exit_words(host), .input_file = {}});
  if (const remote::StepOutcome problem = session.connect())
    return Error{ErrorCode::Unavailable, problem->reason};
  return ok_status();
}

// Said by us, as the host would have.
HostAnswer refuse(const std::string& host, const std::string& why, const OnOutput& on_output) {
  if (on_output) on_output(why + "\n");
  return {.host = host, .exit_code = kFailure, .output = why};
}

// Our own llorch-pool, in the name of a host.
HostAnswer ask_local(const std::string& host, const std::vector<std::string>& words,
                     const OnOutput& on_output) {
  base::ProcessOptions options;
  options.program = base::own_folder() / "llorch-pool";
  options.arguments = words;
  options.output_tail_bytes = kOutputBytes;
  options.on_output = on_output;
  options.dies_with_parent = true;
  const auto process = base::Process::spawn(options);
  if (!process.ok()) return refuse(host, process.error().message, on_output);
  const auto exit = (*process)->wait_for(kCommandPatience);
  return {.host = host,
          .exit_code = exit && exit->signal == 0 ? exit->code : kFailure,
          .output = (*process)->output_tail()};
}

HostAnswer ask_with_ssh(const HostDoor& door, const std::string& host,
                        const std::vector<std::string>& words, const OnOutput& on_output) {
  const Result<SshHost> target = SshHost::make(host, door.run_folder);
  if (!target.ok()) return refuse(host, target.error().message, on_output);
  HostSession session(door.ssh, *target, door.programs);
  if (const remote::StepOutcome problem = session.connect())
    return refuse(host, problem->reason, on_output);
  remote::RemoteCommand command{.words = {"llorch-pool"}, .environment = {}};
  command.words.insert(command.words.end(), words.begin(), words.end());
  const Result<remote::SshWords> call = remote::exec_words(*target, command, remote::Terminal::No);
  if (!call.ok()) return refuse(host, call.error().message, on_output);
  const Result<remote::SshOutcome> done =
      remote::run_ssh(door.ssh, {.words = *call,
                                 .patience = kCommandPatience,
                                 .input_file = {},
                                 .max_output_bytes = kOutputBytes,
                                 .on_output = on_output});
  if (!done.ok()) return refuse(host, done.error().message, on_output);
  return {.host = host,
          .exit_code = done->exit.signal == 0 ? done->exit.code : kFailure,
          .output = done->output};
}

HostAnswer ask_one(const HostDoor& door, const HostWay& way, std::vector<std::string> words,
                   JoinedPools joined, const OnOutput& on_output) {
  if (way.host == kLocalHost) return ask_local(way.host, words, on_output);
  if (!way.came_by_itself) return ask_with_ssh(door, way.host, words, on_output);
  if (joined == JoinedPools::Refuse || way.pool_url.empty())
    return refuse(way.host, no_way_to(way).message, on_output);
  words.insert(words.begin(), {"--pool", way.pool_url});
  return ask_local(way.host, words, on_output);
}

}  // namespace

Result<HostDoor> open_door(const FleetContext& context) {
  HostDoor door;
  Result<fs::path> ssh = remote::find_ssh(context.environment);
  if (!ssh.ok()) return ssh.error();
  door.ssh = ssh.take();
  Result<fs::path> run_folder = remote::make_run_folder(context.home, context.environment);
  if (!run_folder.ok()) return run_folder.error();
  door.run_folder = run_folder.take();
  const char* programs = context.environment("LLORCH_HOST_PROGRAMS");
  door.programs =
      programs != nullptr && *programs != '\0' ? fs::path(programs) : base::own_folder();
  return door;
}

Result<std::unique_ptr<HostSession>> open_session(const HostDoor& door, const std::string& name,
                                                  FirstContact first_contact) {
  const Result<SshHost> host = SshHost::make(name, door.run_folder);
  if (!host.ok()) return host.error();
  auto session = std::make_unique<HostSession>(door.ssh, *host, door.programs);
  const remote::StepOutcome problem = session->connect(first_contact);
  if (!problem) return session;
  if (!problem->needs_a_person || !has_terminal())
    return Error{ErrorCode::Unavailable, problem->reason};
  if (Status asked = ask_in_terminal(door, *host, *session); !asked.ok()) return asked.error();
  return session;
}

Result<std::vector<std::string>> find_hosts(const FleetContext& context, const std::string& text) {
  std::vector<std::string> hosts;
  if (text == "all") {
    const Result<FleetClient> client = find_orchestrator(target_of(context));
    if (!client.ok()) return client.error().in("--host all");
    const auto list = client->get<contract::HostList>("/v2/hosts");
    if (!list.ok()) return list.error();
    for (const contract::HostView& host : list->hosts)
      if (host.state != "unknown") hosts.push_back(host.name);
    return hosts;
  }
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string name = text.substr(begin, end - begin);
    if (name.empty()) {
      return Error{ErrorCode::InvalidArgument,
                   "--host: expected a name, several with commas between them, or all"};
    }
    if (std::find(hosts.begin(), hosts.end(), name) == hosts.end())
      hosts.push_back(std::move(name));
    begin = end + 1;
  }
  return hosts;
}

std::vector<HostWay> find_ways(const FleetContext& context, const std::vector<std::string>& hosts) {
  std::vector<HostWay> ways;
  for (const std::string& host : hosts) ways.push_back({.host = host});
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return ways;
  const auto list = client->get<contract::HostList>("/v2/hosts");
  if (!list.ok()) return ways;
  // Its sockets to such pools are on its own machine.
  const bool is_of_this_home = context.url.empty();
  for (HostWay& way : ways) {
    for (const contract::HostView& host : list->hosts) {
      if (host.name != way.host || host.kind != "joined") continue;
      way.came_by_itself = true;
      if (is_of_this_home && host.state == "connected") way.pool_url = host.pool_url;
    }
  }
  return ways;
}

Error no_way_to(const HostWay& way) {
  return {ErrorCode::Unsupported,
          fmt::format("host '{}' joined by itself, expected one that ssh leads to: run the command "
                      "there, with llorch-pool in place of `llorch pool --host {}`",
                      way.host, way.host)};
}

std::vector<HostAnswer> ask_hosts(const HostDoor& door, const std::vector<HostWay>& ways,
                                  const std::vector<std::string>& words, JoinedPools joined,
                                  const OnHostOutput& on_output) {
  std::vector<HostAnswer> answers(ways.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      threads.push_back(base::start_thread("host", [&, i] {
        OnOutput on_bytes;
        if (on_output) on_bytes = [&on_output, i](std::string_view bytes) { on_output(i, bytes); };
        answers[i] = ask_one(door, ways[i], words, joined, on_bytes);
      }));
    }
  }
  return answers;
}

}  // namespace llorch::cli
