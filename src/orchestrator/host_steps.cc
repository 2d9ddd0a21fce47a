#include "orchestrator/host_steps.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/channel.h"
#include "base/log.h"
#include "base/thread.h"
#include "http/url.h"
#include "remote/host_session.h"
#include "remote/ssh_run.h"

namespace llorch::orchestrator {
namespace {

using fleet::HostAction;
using remote::HostSession;
using remote::StepProblem;

constexpr std::chrono::milliseconds kLook{500};  // at a connection that stands
constexpr std::chrono::milliseconds kEndPatience{2'000};
constexpr std::chrono::milliseconds kBreakLook{200};  // at one whose call failed
constexpr std::size_t kOrdersMax = 4;  // of one host; the policy has one under way at a time
constexpr std::string_view kEnds = "the orchestrator ends";

const base::Logger& logger() {
  static const base::Logger instance("host_steps");
  return instance;
}

HostSteps::Outcome failed(std::string reason, bool is_final) {
  return {{.ok = false, .reason = std::move(reason), .is_final = is_final}, {}};
}

HostSteps::Outcome outcome_of(const remote::StepOutcome& problem) {
  if (problem) return failed(problem->reason, problem->needs_a_person);
  return {{.ok = true}, {}};
}

// What would be the same at the next try.
bool is_final(const std::vector<remote::Finding>& findings) {
  for (const remote::Finding& finding : findings) {
    const bool may_change = finding.subject == "disk" || finding.subject == "tools";
    if (!finding.passed && !may_change) return true;
  }
  return false;
}

HostSteps::Outcome preflight(HostSession& session) {
  const Result<std::vector<remote::Finding>> findings = session.look();
  if (!findings.ok()) return failed(findings.error().message, false);
  std::string reasons;
  for (const remote::Finding& finding : *findings) {
    if (finding.passed) continue;
    reasons += reasons.empty() ? finding.sentence : "; " + finding.sentence;
  }
  if (!reasons.empty()) return failed(std::move(reasons), is_final(*findings));
  return {{.ok = true}, {}};
}

HostSteps::Outcome install(HostSession& session) {
  const HostSession::InstallOutcome installed =
      session.install([&session](const remote::ProgramFile& file) {
        logger().info(
            "sending a program",
            {{"host", session.host().name()}, {"file", file.name}, {"bytes", file.bytes}});
      });
  HostSteps::Outcome outcome = outcome_of(installed.problem);
  outcome.step.is_new_version = installed.is_new_version;
  return outcome;
}

HostSteps::Outcome open_pool(HostSession& session) {
  const Result<remote::RemotePool> pool = session.start_pool();
  if (!pool.ok()) return failed(pool.error().message, false);
  logger().info("its pool runs", {{"host", session.host().name()}, {"as", pool->runs_as}});
  const Result<remote::Tunnel> tunnel = session.open_tunnel(*pool);
  if (!tunnel.ok()) return failed(tunnel.error().message, false);
  HostSteps::Outcome outcome{{.ok = true}, {}};
  outcome.pool.url = http::unix_url(tunnel->socket.string());
  // A port answers to the name that it has there.
  if (!tunnel->port.empty()) outcome.pool.url += ":" + tunnel->port;
  return outcome;
}

HostSteps::Outcome perform_connected(HostSession& session, HostAction action) {
  switch (action) {
    case HostAction::Preflight:
      return preflight(session);
    case HostAction::Install:
      return install(session);
    case HostAction::RollBack:
      logger().warn("going back to the version before", {{"host", session.host().name()}});
      if (const remote::StepOutcome problem = session.roll_back()) return outcome_of(problem);
      return open_pool(session);
    case HostAction::Start:
    case HostAction::Connect:
      return open_pool(session);
    case HostAction::Stop: {
      const remote::StepOutcome problem = session.stop_pool();
      session.disconnect();
      return outcome_of(problem);
    }
  }
  return failed("an unknown step", true);
}

std::string_view describe(HostAction action) {
  switch (action) {
    case HostAction::Preflight:
      return "it was looked at";
    case HostAction::Install:
      return "programs were copied";
    case HostAction::RollBack:
      return "it went back to the version before";
    case HostAction::Stop:
      return "its pool was stopped";
    case HostAction::Start:
    case HostAction::Connect:
      break;
  }
  return "its pool was started";
}

HostSteps::Outcome perform(HostSession& session, HostAction action) {
  if (const remote::StepOutcome problem = session.connect()) {
    HostSteps::Outcome outcome = outcome_of(problem);
    outcome.step.link = fleet::Link::Absent;
    return outcome;
  }
  HostSteps::Outcome outcome = perform_connected(session, action);
  if (outcome.step.ok || action == HostAction::Stop || session.stays_connected(kBreakLook))
    return outcome;
  // Whatever the step made of half an answer, it says nothing about the host.
  const std::string& host = session.host().name();
  logger().warn("a connection broke in the middle of a step",
                {{"host", host}, {"step", fleet::name(action)}, {"why", outcome.step.reason}});
  outcome =
      failed(fmt::format("the ssh connection to {} broke while {}", host, describe(action)), false);
  outcome.step.link = fleet::Link::Broke;
  return outcome;
}

}  // namespace

// One host's thread, and what it is to do.
class SshHostSteps::Line {
 public:
  Line(remote::SshHost host, const SshHostStepsOptions& options)
      : ssh_(options.ssh),
        host_(std::move(host)),
        on_lost_(options.on_lost),
        thread_(base::start_thread("host-steps", [this, &options](const std::stop_token& stop) {
          HostSession session(ssh_, host_, options.programs);
          run(session, stop);
          session.disconnect();
        })) {}

  ~Line() {
    thread_.request_stop();
    orders_.close();
    // What waits for the host fails at once when the connection goes.
    if (is_busy_)
      std::ignore = remote::run_ssh(
          ssh_, {.words = remote::exit_words(host_), .patience = kEndPatience, .input_file = {}});
    thread_.join();
    while (const std::optional<Order> order = orders_.try_pop())
      order->on_end(failed(std::string(kEnds), false));
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // False where too many wait: it is not done, and nobody is told.
  bool add(HostAction action, OnEnd on_end) {
    return orders_.try_push({action, std::move(on_end)});
  }

 private:
  struct Order {
    HostAction action = HostAction::Connect;
    OnEnd on_end;
  };

  void run(HostSession& session, const std::stop_token& stop) {
    bool is_up = false;
    while (!stop.stop_requested()) {
      // Nothing after a while, to look at the connection.
      const auto order = orders_.pop_until(std::chrono::steady_clock::now() + kLook);
      if (order) {
        is_busy_ = true;
        Outcome outcome = perform(session, order->action);
        is_busy_ = false;
        order->on_end(std::move(outcome));
        is_up = session.is_connected();
      } else if (is_up && !session.is_connected()) {
        is_up = false;
        logger().warn("the connection to a host is lost", {{"host", host_.name()}});
        if (on_lost_)
          on_lost_(host_.name(), fmt::format("the ssh connection to {} broke", host_.name()));
      }
    }
  }

  const std::filesystem::path ssh_;
  const remote::SshHost host_;
  const std::function<void(const fleet::HostId&, std::string)>& on_lost_;
  std::atomic<bool> is_busy_ = false;
  base::Channel<Order> orders_{kOrdersMax};
  std::jthread thread_;  // last: it uses the rest
};

SshHostSteps::SshHostSteps(SshHostStepsOptions options) : options_(std::move(options)) {}

SshHostSteps::~SshHostSteps() {
  stop();
}

void SshHostSteps::stop() {
  std::map<fleet::HostId, std::unique_ptr<Line>> lines;
  {
    const base::MutexLock lock(mutex_);
    has_ended_ = true;
    lines.swap(lines_);
  }
}

void SshHostSteps::step(const fleet::HostId& host, HostAction action, OnEnd on_end) {
  Result<remote::SshHost> target = remote::SshHost::make(host, options_.run_folder);
  if (!target.ok()) return on_end(failed(target.error().message, true));
  std::string reason(kEnds);
  {
    const base::MutexLock lock(mutex_);
    if (!has_ended_) {
      std::unique_ptr<Line>& line = lines_[host];
      if (line == nullptr) line = std::make_unique<Line>(target.take(), options_);
      if (line->add(action, on_end)) return;
      reason = fmt::format("{} steps wait for {} already", kOrdersMax, host);
    }
  }
  on_end(failed(std::move(reason), false));
}

}  // namespace llorch::orchestrator
