// llorch up HOST and down HOST: first contact and a look at the host from the user's terminal, then
// the orchestrator does the rest and is watched at it.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "base/terminal.h"
#include "cli/fleet_command.h"
#include "cli/fleet_tables.h"
#include "cli/host_door.h"
#include "cli/output.h"
#include "http/url.h"

namespace llorch::cli {
namespace {

using base::Color;
using std::chrono::milliseconds;

constexpr milliseconds kLook{100};
constexpr std::chrono::seconds kUpPatience{1'800};  // programs may travel over a slow link
constexpr std::chrono::seconds kDownPatience{300};

std::string host_path(const std::string& host) {
  return "/v2/hosts/" + http::percent_encode(host);
}

// Steps that were taken, one line each, on stderr with --json.
class StepList {
 public:
  explicit StepList(const FleetContext& context) : context_(context) {}

  void add(bool passed, std::string_view sentence) const {
    const std::string mark =
        base::paint(passed ? "ok  " : "no  ", passed ? Color::Green : Color::Red,
                    context_.color && !context_.json_output);
    const std::string text =
        mark + base::wrap(base::printable(sentence), terminal_width(), 4) + "\n";
    if (context_.json_output)
      write_err(text);
    else
      write_out(text);
  }

 private:
  const FleetContext& context_;
};

// Whether the host can be used, every finding told.
Status look_at(const HostDoor& door, const std::string& host, remote::FirstContact first_contact,
               const StepList& steps) {
  Result<std::unique_ptr<remote::HostSession>> session = open_session(door, host, first_contact);
  if (!session.ok()) return session.error();
  steps.add(true, fmt::format("{} lets us in", host));
  const Result<std::vector<remote::Finding>> findings = (*session)->look();
  if (!findings.ok()) return findings.error();
  for (const remote::Finding& finding : *findings) steps.add(finding.passed, finding.sentence);
  if (remote::all_passed(*findings)) return ok_status();
  return Error{ErrorCode::Unsupported, fmt::format("{} cannot be used as it is; see above", host)};
}

std::string stage_of(const contract::HostView& view) {
  if (view.step == "preflight") return "looking at it";
  if (view.step == "install") return "copying the programs that it lacks";
  if (view.step == "roll_back") return "putting the version before back";
  if (view.state == "starting") return "starting its pool";
  return view.step.empty() ? view.state : fmt::format("{}: {}", view.state, view.step);
}

// Watches the orchestrator until the host takes work and nothing is under way there any more, or
// it cannot.
Result<contract::HostView> wait_until_up(const FleetClient& client, const std::string& host,
                                         const std::stop_token& stop) {
  base::StatusLine line(stderr);
  const auto until = std::chrono::steady_clock::now() + kUpPatience;
  bool has_begun = false;
  while (std::chrono::steady_clock::now() < until) {
    if (stop.stop_requested())
      return Error{ErrorCode::Cancelled, "interrupted; it goes on by itself"};
    Result<contract::HostView> view =
        client.get<contract::HostView>(host_path(host), {.stop = stop});
    if (!view.ok()) return view;
    has_begun = has_begun || (view->state != "gone" && view->state != "unknown");
    if (view->state == "connected" && view->step.empty()) return view;
    // A host that was gone before it was asked up says so until the first step.
    if (view->state == "gone" && (has_begun || !view->reason.empty()) && view->step.empty())
      return Error{ErrorCode::Unavailable, fmt::format("{}: {}", host, view->reason)};
    line.show(fmt::format("{}: {}", host, stage_of(*view)));
    std::this_thread::sleep_for(kLook);
  }
  return Error{ErrorCode::DeadlineExceeded,
               fmt::format("{} is not up after {} s; `llorch hosts` says how it is", host,
                           kUpPatience.count())};
}

Result<contract::HostView> bring_up(const FleetContext& context, const FleetClient& client,
                                    const HostDoor& door, const std::string& host,
                                    remote::FirstContact first_contact,
                                    const std::stop_token& stop) {
  const StepList steps(context);
  // No ssh leads to a pool that came by itself, and one to its name may lead elsewhere.
  const Result<contract::HostView> known =
      client.get<contract::HostView>(host_path(host), {.stop = stop});
  if (known.ok() && known->kind == "joined" && known->state != "unknown") {
    return Error{ErrorCode::Conflict,
                 fmt::format("host '{}' comes by itself: `llorch-pool join` there", host)};
  }
  // Nor is one needed to this machine.
  if (!known.ok() || known->kind != "local") {
    if (Status good = look_at(door, host, first_contact, steps); !good.ok()) return good.error();
  }
  const Result<json::Value> asked = client.calls().post(
      "/v2/hosts", contract::write_fields(contract::HostRequest{host}), {.stop = stop});
  if (!asked.ok()) return asked.error();
  Result<contract::HostView> view = wait_until_up(client, host, stop);
  if (!view.ok()) return view.error();
  steps.add(true, fmt::format("its pool answers: {} {}, {} {}, {} free for models", view->cores,
                              view->cores == 1 ? "core" : "cores", view->devices.size(),
                              view->devices.size() == 1 ? "device" : "devices",
                              base::human_bytes(view->disk_free_bytes)));
  steps.add(true, fmt::format("{} is up and takes work", host));
  return view;
}

Status take_down(const FleetClient& client, const std::string& host, const std::stop_token& stop) {
  const Result<json::Value> asked =
      client.calls().post(host_path(host) + "/down", {}, {.stop = stop});
  if (!asked.ok()) return asked.error();
  base::StatusLine line(stderr);
  const auto until = std::chrono::steady_clock::now() + kDownPatience;
  for (;;) {
    const Result<contract::HostView> view =
        client.get<contract::HostView>(host_path(host), {.stop = stop});
    if (!view.ok() && view.error().code == ErrorCode::NotFound) return ok_status();
    if (!view.ok()) return view.error();
    if (view->state == "unknown" && view->step.empty()) return ok_status();
    if (stop.stop_requested())
      return Error{ErrorCode::Cancelled, "interrupted; it goes on by itself"};
    if (std::chrono::steady_clock::now() > until) {
      return Error{ErrorCode::DeadlineExceeded,
                   fmt::format("{} is not down after {} s", host, kDownPatience.count())};
    }
    line.show(fmt::format("{}: stopping {} workers", host, view->workers));
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

int up_hosts(const FleetContext& context, const std::vector<std::string>& hosts, bool accept_new) {
  const Result<HostDoor> door = open_door(context);
  if (!door.ok()) return fail(door.error());
  const Result<FoundOrchestrator> found = find_or_start_orchestrator(target_of(context));
  if (!found.ok()) return fail(found.error());
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  const auto first_contact =
      accept_new ? remote::FirstContact::AcceptNew : remote::FirstContact::Refuse;
  json::Array list;
  int code = 0;
  for (const std::string& host : hosts) {
    const Result<contract::HostView> up =
        bring_up(context, found->client, *door, host, first_contact, stop.get_token());
    if (up.ok()) list.push_back(contract::write_fields(*up));
    if (watch.interrupted()) return kInterrupted;
    if (!up.ok()) code = fail(up.error());
    if (up.ok() && !up->note.empty()) {
      code = fail(
          Error{ErrorCode::Unavailable, fmt::format("{} was not upgraded: {}", host, up->note)});
    }
  }
  if (!context.json_output) return code;
  const int printed = print_json(json::Object{{"hosts", std::move(list)}});
  return printed != 0 ? printed : code;
}

int down_hosts(const FleetContext& context, const std::vector<std::string>& hosts) {
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  int code = 0;
  for (const std::string& host : hosts) {
    const Status down = take_down(*client, host, stop.get_token());
    if (watch.interrupted()) return kInterrupted;
    if (!down.ok()) {
      code = fail(down.error());
      continue;
    }
    const int printed = context.json_output
                            ? print_json(json::Object{{"host", host}, {"status", "down"}})
                            : print(fmt::format("{} is down\n", base::printable(host)));
    code = std::max(code, printed);
  }
  return code;
}

}  // namespace llorch::cli
