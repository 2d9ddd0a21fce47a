// Why ssh could not connect, from what it printed, in words for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace llorch::remote {

// The most of ssh's output that a message or a log ever shows.
inline constexpr std::size_t kMaxShownLines = 20;
// The end of the text, at most that many lines, made harmless for terminals.
std::string last_lines(std::string_view text, std::size_t max_lines = kMaxShownLines);

enum class SshFailureKind : std::uint8_t {
  UnknownName,
  Unreachable,     // no route, no answer, refused
  HostKeyUnknown,  // nobody has accepted it yet
  HostKeyChanged,
  LoginRefused,
  ConnectionLost,
  Other,
};

struct SshFailure {
  SshFailureKind kind = SshFailureKind::Other;
  std::string sentence;  // names the host and what to do
  // Trying again by itself would change nothing, or would be wrong: somebody has to look first.
  bool needs_a_person = false;
};

// `output` is what ssh wrote before it ended.
SshFailure explain_ssh_failure(std::string_view host, std::string_view output);

}  // namespace llorch::remote
