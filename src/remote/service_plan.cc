#include "remote/service_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace llorch::remote {
namespace {

constexpr std::string_view kMark = "llorch:service ";

// Where the session has other folders than the account, a service would look in the wrong ones. A
// unit that cannot be enabled or started is taken away again. The manager alone gets the signal:
// workers stay with their keepers, the next manager adopts them. A version that did not come up may
// have used up the starts that systemd allows.
constexpr std::string_view kStart =
    "umask 077; say() { echo llorch:service $1; exit 0; };"
    " u=llorch-pool.service; d=.config/systemd/user;"
    " give_up() { systemctl --user disable --now $u >/dev/null 2>&1; rm -f $d/$u;"
    " systemctl --user daemon-reload >/dev/null 2>&1; say $1; };"
    " test -z \"$LLORCH_HOME$XDG_CONFIG_HOME$XDG_DATA_HOME$XDG_STATE_HOME$XDG_CACHE_HOME\""
    " || say other-home;"
    " test \"$(getent passwd $(id -u) 2>/dev/null | cut -d : -f 6)\" -ef \"$HOME\""
    " || say other-home;"
    " systemctl --user show-environment >/dev/null 2>&1 || say none;"
    " loginctl enable-linger >/dev/null 2>&1 || say no-linger;"
    " mkdir -p $d .local/state/llorch/logs && {"
    " echo \"[Unit]\"; echo \"Description=llama-orch pool manager\"; echo;"
    " echo \"[Service]\"; echo Type=notify; echo NotifyAccess=main;"
    " echo \"ExecStart=%h/.local/lib/llorch/current/pool-managerd --log-format json"
    " --log-file %h/.local/state/llorch/logs/pool.log --any-port\";"
    " echo KillMode=process; echo TimeoutStopSec=120; echo Restart=on-failure; echo RestartSec=1;"
    " echo OOMPolicy=continue; echo UMask=0077; echo;"
    " echo \"[Install]\"; echo WantedBy=default.target; } > $d/$u.new && mv -f $d/$u.new $d/$u"
    " || say not-written;"
    " systemctl --user daemon-reload >/dev/null 2>&1 || give_up refused;"
    " systemctl --user enable $u >/dev/null 2>&1 || give_up refused;"
    " .local/lib/llorch/current/llorch-pool health >/dev/null 2>&1 && say runs;"
    " systemctl --user reset-failed $u >/dev/null 2>&1;"
    " systemctl --user start $u >/dev/null 2>&1 || give_up failed;"
    " say started";

constexpr std::string_view kEnd =
    "u=llorch-pool.service; f=.config/systemd/user/$u; test -e $f || exit 0;"
    " systemctl --user disable --now $u >/dev/null 2>&1; rm -f $f;"
    " systemctl --user daemon-reload >/dev/null 2>&1; exit 0";

// Why it is a process of its own.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kReasons = {{
    {"none", "the host has no systemd for this user"},
    {"no-linger", "loginctl enable-linger was refused, a service would end with the login"},
    {"other-home", "this session has other folders than the account"},
    {"not-written", "its unit could not be written"},
    {"refused", "systemctl --user took no new unit"},
    {"failed", "the service did not start, journalctl --user -u llorch-pool says why"},
}};

}  // namespace

std::string_view start_service_script() {
  return kStart;
}

std::string_view end_service_script() {
  return kEnd;
}

ServiceAnswer parse_service(std::string_view output) {
  const std::size_t at = output.rfind(kMark);
  std::string_view word =
      at == std::string_view::npos ? std::string_view() : output.substr(at + kMark.size());
  word = word.substr(0, std::min(word.find_first_of("\r\n"), word.size()));
  if (word == "started" || word == "runs")
    return {true, fmt::format("a service of systemd --user ({})", kServiceUnit)};
  const auto* reason = std::find_if(kReasons.begin(), kReasons.end(),
                                    [word](const auto& one) { return one.first == word; });
  return {false,
          fmt::format("a process of its own: {}",
                      reason == kReasons.end() ? "the host did not say more" : reason->second)};
}

}  // namespace llorch::remote
