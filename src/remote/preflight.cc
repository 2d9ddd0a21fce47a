#include "remote/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include "base/terminal.h"
#include "remote/ssh_failure.h"

namespace llorch::remote {
namespace {

constexpr std::string_view kMark = "llorch:";
constexpr std::size_t kMaxAnswerBytes = 4096;

// getconf is not everywhere; ldd of other C libraries names them on one of its first lines.
constexpr std::string_view kScript =
    "echo llorch:system $(uname -s);"
    " echo llorch:machine $(uname -m);"
    " echo llorch:libc $(getconf GNU_LIBC_VERSION 2>/dev/null || ldd --version 2>&1 | head -n 1);"
    " echo \"llorch:home $(pwd -P)\";"
    " echo llorch:free_kib $(df -Pk . | tail -n 1 | tr -s \" \" | cut -d \" \" -f 4);"
    " d=.local/lib/llorch; until test -e $d; do d=$(dirname $d); done; if test -w $d;"
    " then echo llorch:write yes; else echo llorch:write no; fi;"
    " if command -v sha256sum >/dev/null 2>&1 && mv --help 2>&1 | grep -q -e --no-target;"
    " then echo llorch:tools yes; else echo llorch:tools no; fi;"
    " if systemctl --user show-environment >/dev/null 2>&1;"
    " then echo llorch:systemd yes; else echo llorch:systemd no; fi;"
    " echo llorch:end";

std::map<std::string, std::string, std::less<>> read_answers(std::string_view output) {
  std::map<std::string, std::string, std::less<>> answers;
  while (!output.empty()) {
    const std::size_t end = output.find('\n');
    std::string_view line = output.substr(0, end);
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with(kMark) || line.size() > kMaxAnswerBytes) continue;
    line.remove_prefix(kMark.size());
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string_view value =
        space < line.size() ? line.substr(space + 1) : std::string_view();
    answers.emplace(line.substr(0, space), base::printable(value));
  }
  return answers;
}

std::int64_t parse_count(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool is_good = error == std::errc() && end == text.data() + text.size() && count >= 0;
  return is_good ? count : 0;
}

// The minor version of "glibc 2.36"; -1: another C library, or none was named.
int glibc_minor(std::string_view libc) {
  constexpr std::string_view kPrefix = "glibc 2.";
  if (!libc.starts_with(kPrefix)) return -1;
  libc.remove_prefix(kPrefix.size());
  int minor = -1;
  std::from_chars(libc.data(), libc.data() + libc.size(), minor);
  return minor;
}

Finding judge_libc(std::string_view host, const HostFacts& facts, int min_minor) {
  const int minor = glibc_minor(facts.libc);
  if (minor >= min_minor) return {"libc", true, fmt::format("{} has {}", host, facts.libc)};
  if (minor >= 0)
    return {
        "libc", false,
        fmt::format("{} has {}, our programs need glibc 2.{} or newer (Debian 11, Ubuntu 20.04, "
                    "RHEL 9): upgrade its system",
                    host, facts.libc, min_minor)};
  return {"libc", false,
          fmt::format("{} has no glibc ({}), our programs need glibc 2.{} or newer", host,
                      facts.libc.empty() ? "it does not say what it has" : facts.libc, min_minor)};
}

Finding judge_disk(std::string_view host, const HostFacts& facts, std::int64_t needed) {
  const std::string where = fmt::format("{} on {}", facts.home, host);
  if (!facts.can_write)
    return {"disk", false,
            fmt::format("{} cannot be written to: make its .local/lib/llorch this user's", where)};
  const bool has_room = facts.free_bytes >= needed;
  return {"disk", has_room,
          fmt::format("{} has {} free, our programs need {}{}", where,
                      base::human_bytes(facts.free_bytes), base::human_bytes(needed),
                      has_room ? "" : ": make room there")};
}

}  // namespace

std::string_view preflight_script() {
  return kScript;
}

Result<HostFacts> parse_preflight(std::string_view output) {
  auto answers = read_answers(output);
  if (!answers.contains("end") || !answers.contains("system"))
    return Error{
        ErrorCode::Corrupt,
        fmt::format("the host did not answer our questions; is its login shell an ordinary "
                    "one? It said:\n{}",
                    last_lines(output))};
  HostFacts facts;
  facts.system = answers["system"];
  facts.machine = answers["machine"];
  facts.libc = answers["libc"];
  facts.home = answers["home"];
  const std::int64_t free_kib = parse_count(answers["free_kib"]);
  facts.free_bytes = std::min(free_kib, std::numeric_limits<std::int64_t>::max() / 1024) * 1024;
  facts.can_write = answers["write"] == "yes";
  facts.has_tools = answers["tools"] == "yes";
  facts.has_user_systemd = answers["systemd"] == "yes";
  return facts;
}

std::vector<Finding> judge_host(std::string_view host, const HostFacts& facts,
                                const HostNeeds& needs) {
  std::vector<Finding> findings;
  const bool is_linux = facts.system == "Linux";
  findings.push_back(
      {"system", is_linux,
       is_linux ? fmt::format("{} runs Linux", host)
                : fmt::format("{} runs {}, our programs run on Linux", host,
                              facts.system.empty() ? "an unknown system" : facts.system)});
  const bool is_known = std::find(needs.machines.begin(), needs.machines.end(), facts.machine) !=
                        needs.machines.end();
  findings.push_back(
      {"processor", is_known,
       is_known ? fmt::format("{} has an {} processor", host, facts.machine)
                : fmt::format("{} has a processor of kind {}; there are programs here for {}", host,
                              facts.machine.empty() ? "unknown" : facts.machine,
                              fmt::join(needs.machines, ", "))});
  findings.push_back(judge_libc(host, facts, needs.min_glibc_minor));
  findings.push_back(judge_disk(host, facts, needs.needed_bytes));
  findings.push_back(
      {"tools", facts.has_tools,
       facts.has_tools
           ? fmt::format("{} has sha256sum and mv", host)
           : fmt::format("{} lacks sha256sum or the mv of coreutils: install coreutils there",
                         host)});
  return findings;
}

bool all_passed(const std::vector<Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.passed; });
}

}  // namespace llorch::remote
