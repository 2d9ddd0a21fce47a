// llorch top: the whole house, live, with keys to sort, select and cancel.
#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/interrupt.h"
#include "base/terminal.h"
#include "cli/ask_fleet.h"
#include "cli/fleet_command.h"
#include "cli/fleet_tables.h"
#include "cli/output.h"
#include "cli/screen.h"
#include "cli/top_view.h"

namespace llorch::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kFooter = R"(Examples:
  llorch top
  llorch top --interval 0.5

Keys: up and down (or k and j) select a job, c cancels it (asks first), s sorts by
another column, p shows the hosts or hides them, q ends. Needs a terminal;
`llorch status --watch` does not. --json prints one look as an object and ends.)";

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";  // another screen, no cursor
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H\x1b[J";

// Keys one by one, unseen, and another screen; all as it was at the end.
class RawTerminal {
 public:
  RawTerminal() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write_out(kEnter);
  }
  ~RawTerminal() {
    write_out(kLeave);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  // What was typed within `patience`.
  static std::string read_keys(milliseconds patience) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, static_cast<int>(patience.count())) <= 0) return {};
    std::string keys(64, '\0');
    const ssize_t got = ::read(STDIN_FILENO, keys.data(), keys.size());
    keys.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return keys;
  }

 private:
  termios before_{};
};

int top(const FleetContext& context, double interval) {
  const bool has_terminal = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
  if ((!has_terminal || has_dumb_terminal(context.environment)) && !context.json_output) {
    complain(has_terminal ? "top needs more than a dumb terminal (TERM=dumb); `llorch status "
                            "--watch` does not"
                          : "top needs a terminal; `llorch status --watch` does not");
    return kUsage;
  }
  const Result<FleetClient> client = find_orchestrator(target_of(context));
  if (!client.ok()) return fail(client.error());
  if (context.json_output) {
    const Result<json::Value> status = client->calls().get("/v2/status");
    return status.ok() ? print_json(*status) : fail(status.error());
  }
  std::stop_source stop;
  const base::InterruptWatch watch([&stop] { stop.request_stop(); });
  const pool_client::CallLimits limits{.stop = stop.get_token()};
  const auto pause =
      std::chrono::duration_cast<milliseconds>(std::chrono::duration<double>(interval));
  const RawTerminal terminal;
  TopView view;
  Clock::time_point next = Clock::now();
  while (!watch.interrupted()) {
    if (Clock::now() >= next) {
      next = Clock::now() + pause;
      auto status = client->get<contract::FleetStatus>("/v2/status", limits);
      if (status.ok())
        view.take(std::move(*status));
      else
        view.note(status.error().message);
    }
    write_out(std::string(kHome) +
              view.render(client->url(), terminal_view(context.color), terminal_height()));
    const auto left = std::chrono::duration_cast<milliseconds>(next - Clock::now());
    const std::string keys = RawTerminal::read_keys(std::max(left, milliseconds(1)));
    for (const TopAction& action : view.press(keys)) {
      if (action.kind == TopAction::Kind::Quit) return 0;
      const Result<contract::TaskStopped> stopped = cancel_job(*client, action.job, limits);
      view.note(stopped.ok() ? fmt::format("{} {} within {:.0f} ms", stopped->job_id,
                                           stopped->status, stopped->stop_ms)
                             : stopped.error().message);
      next = Clock::now();
    }
  }
  return kInterrupted;
}

}  // namespace

void add_top_command(CLI::App& app, FleetContext& context) {
  auto interval = std::make_shared<double>(1);
  add_fleet_command(app, context, "top", "the whole house, live", kFooter,
                    [&context, interval] { return top(context, *interval); })
      ->add_option("--interval", *interval, "seconds between two looks (1)")
      ->type_name("S")
      ->check(CLI::Range(0.1, 60.0).description(""));
}

}  // namespace llorch::cli
