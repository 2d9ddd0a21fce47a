// llorch-pool join and leave: this pool in a fleet that cannot reach it.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/terminal.h"
#include "cli/output.h"
#include "cli/pool_command.h"
#include "contract/api_token.h"
#include "contract/fleet_api.h"
#include "contract/join_api.h"

namespace llorch::cli {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kPemBytesMax = 64 * 1024;
constexpr milliseconds kPatience{20'000};
constexpr milliseconds kLook{50};

constexpr const char* kJoinFooter = R"(Examples:
  llorch-pool join https://box:8080 --token-file key --ca-file llorch-ca.pem
  llorch-pool join https://llm.example --token-file key --name attic

On the orchestrator's machine `llorch keys add attic --scope join` makes the key, and
`llorch ca --pem` prints the authority where its certificate is its own. This host opens
the connections, so it may be behind a router or a firewall; nothing is opened here. It
stays joined over restarts of both until `llorch-pool leave`, or until an administrator
takes it down.)";

constexpr const char* kLeaveFooter = R"(Examples:
  llorch-pool leave

The fleet moves what runs here elsewhere; the workers stay.)";

struct JoinArguments {
  contract::PoolJoinRequest request;
  std::string token_file;
};

Result<contract::PoolJoinState> read_state(const Result<json::Value>& answer) {
  if (!answer.ok()) return answer.error();
  if (!answer->is_object()) return Error{ErrorCode::Internal, "the manager's answer is no object"};
  std::vector<json::FieldError> errors;
  return contract::read_described<contract::PoolJoinState>(answer->get_object(), errors, true);
}

std::string own_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Result<contract::PoolJoinRequest> complete(const PoolContext& context,
                                           const JoinArguments& arguments) {
  contract::PoolJoinRequest request = arguments.request;
  Result<std::string> token = contract::read_api_token(arguments.token_file);
  if (!token.ok()) return token.error().in("--token-file");
  request.token = token.take();
  if (request.name.empty()) request.name = own_name();
  if (!context.ca_file.empty()) {
    Result<std::string> pem = base::read_text_file(context.ca_file, kPemBytesMax);
    if (!pem.ok()) return pem.error().in("--ca-file");
    request.ca_pem = pem.take();
  }
  return request;
}

int join(const PoolContext& context, const JoinArguments& arguments) {
  const Result<contract::PoolJoinRequest> request = complete(context, arguments);
  if (!request.ok()) return fail(request.error());
  PoolTarget target = target_of(context);
  target.stays = true;
  const Result<PoolClient> client = find_or_start_pool(target);
  if (!client.ok()) return fail(client.error());
  Result<contract::PoolJoinState> state =
      read_state(client->post("/v2/join", contract::write_fields(*request)));
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (state.ok() && state->state == "connecting" && std::chrono::steady_clock::now() < until) {
    base::real_clock().sleep_for(kLook, {});
    state = read_state(client->get("/v2/join"));
  }
  if (!state.ok()) return fail(state.error());
  if (state->state != "joined") {
    return fail({ErrorCode::Unavailable,
                 fmt::format("{} was asked, but no connection came about yet: {}; it is tried on",
                             state->url, state->reason)});
  }
  if (context.json_output) return print_json(contract::write_fields(*state));
  return print(
      fmt::format("joined {} as {}\n", base::printable(state->url), base::printable(state->name)));
}

int leave(const PoolContext& context) {
  const Result<PoolClient> client = find_pool(target_of(context));
  if (!client.ok()) return fail(client.error());
  const auto state = read_state(client->remove("/v2/join"));
  if (!state.ok()) return fail(state.error());
  return print(context.json_output ? "{\"state\":\"none\"}\n" : "left the fleet\n");
}

}  // namespace

void add_join_commands(CLI::App& app, PoolContext& context) {
  auto arguments = std::make_shared<JoinArguments>();
  CLI::App* join_command =
      app.add_subcommand("join", "join a fleet that cannot reach this host with ssh");
  join_command->footer(kJoinFooter);
  join_command->add_option("URL", arguments->request.url, "of the orchestrator, https://…")
      ->required()
      ->type_name("");
  join_command->add_option("--token-file", arguments->token_file, "file with the key to join with")
      ->required()
      ->type_name("FILE");
  join_command->add_option("--name", arguments->request.name, "of this host there (its host name)")
      ->type_name("NAME");
  run_when_named(*join_command, context,
                 [&context, arguments] { return join(context, *arguments); });
  CLI::App* leave_command = app.add_subcommand("leave", "leave it");
  leave_command->footer(kLeaveFooter);
  run_when_named(*leave_command, context, [&context] { return leave(context); });
}

}  // namespace llorch::cli
