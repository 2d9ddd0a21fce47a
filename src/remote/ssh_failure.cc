#include "remote/ssh_failure.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/terminal.h"

namespace llorch::remote {
namespace {

// OpenSSH's own words, the more telling first: a changed key is also a failed verification.
struct Sign {
  std::string_view text;
  SshFailureKind kind;
};
using enum SshFailureKind;
constexpr std::array kSigns = {
    Sign{"REMOTE HOST IDENTIFICATION HAS CHANGED", HostKeyChanged},
    Sign{"REVOKED HOST KEY", HostKeyChanged},
    Sign{"Host key verification failed", HostKeyUnknown},
    Sign{"Could not resolve hostname", UnknownName},
    Sign{"Permission denied (", LoginRefused},
    Sign{"Too many authentication failures", LoginRefused},
    Sign{"No more authentication methods", LoginRefused},
    Sign{"Connection refused", Unreachable},
    Sign{"Connection timed out", Unreachable},
    Sign{"Operation timed out", Unreachable},
    Sign{"No route to host", Unreachable},
    Sign{"Network is unreachable", Unreachable},
    Sign{"not responding", ConnectionLost},
    Sign{"Connection reset", ConnectionLost},
    Sign{"Connection closed", ConnectionLost},
    Sign{"closed by remote host", ConnectionLost},
    Sign{"Broken pipe", ConnectionLost},
};

std::string sentence_for(SshFailureKind kind, std::string_view host) {
  switch (kind) {
    case UnknownName:
      return fmt::format("no host is known as {}; check the spelling, or name it in ~/.ssh/config",
                         host);
    case Unreachable:
      return fmt::format(
          "{} does not answer; is it switched on, in this network, and does sshd run?", host);
    case HostKeyUnknown:
      return fmt::format(
          "the key of {} has never been accepted; run `llorch up {}` in a terminal, or with "
          "--accept-new",
          host, host);
    case HostKeyChanged:
      return fmt::format(
          "the key of {} has changed: another machine answers, or it was set up anew; if that "
          "is right, `ssh-keygen -R` its name and run `llorch up {}`",
          host, host);
    case LoginRefused:
      return fmt::format(
          "{} does not let us in; `ssh {}` must work without a password, or run `llorch up {}` "
          "in a terminal",
          host, host, host);
    case ConnectionLost:
      return fmt::format("the connection to {} was lost", host);
    case Other:
      break;
  }
  return fmt::format("ssh could not connect to {}", host);
}

}  // namespace

std::string last_lines(std::string_view text, std::size_t max_lines) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.push_back(base::printable(line));
  }
  const std::size_t num_dropped = lines.size() - std::min(lines.size(), max_lines);
  return fmt::format(
      "{}", fmt::join(lines.begin() + static_cast<std::ptrdiff_t>(num_dropped), lines.end(), "\n"));
}

SshFailure explain_ssh_failure(std::string_view host, std::string_view output) {
  const auto* sign = std::find_if(kSigns.begin(), kSigns.end(), [output](const Sign& each) {
    return output.find(each.text) != std::string_view::npos;
  });
  const SshFailureKind kind = sign == kSigns.end() ? Other : sign->kind;
  SshFailure failure{kind, sentence_for(kind, host),
                     kind == HostKeyUnknown || kind == HostKeyChanged || kind == LoginRefused};
  if (const std::string said = last_lines(output); !said.empty())
    failure.sentence += "; ssh said:\n" + said;
  return failure;
}

}  // namespace llorch::remote
