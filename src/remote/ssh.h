// The system's ssh as values: which words it is called with. Nothing here runs anything.
//
// One connection for each host, the master, is a child of ours and follows the user's own
// configuration (aliases, keys, ProxyJump). Everything else goes through its control socket, reads
// no configuration, and fails rather than open a connection of its own when the master is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "remote/remote_argv.h"

namespace llorch::remote {

// Without the program's own name.
using SshWords = std::vector<std::string>;

// The longest path a unix socket can have.
inline constexpr std::size_t kMaxSocketPathBytes = 107;

// A name that may be given to ssh, and the two sockets of its connection. The name may be an alias
// of ~/.ssh/config, user@host or an address: [A-Za-z0-9][A-Za-z0-9._:%-]*, once more before an "@",
// at most 255 characters. The user's own ProxyCommand may paste it into a shell.
class SshHost {
 public:
  // The sockets lie in `run_folder`, an absolute path that only its owner may enter, under short
  // names made from the host's. InvalidArgument: the name, or a folder whose path is too long or
  // has characters with a meaning to ssh.
  static Result<SshHost> make(std::string_view name, const std::filesystem::path& run_folder);

  const std::string& name() const { return name_; }
  const std::filesystem::path& control_socket() const { return control_; }
  const std::filesystem::path& tunnel_socket() const { return tunnel_; }

 private:
  SshHost() = default;
  std::string name_;
  std::filesystem::path control_;
  std::filesystem::path tunnel_;
};

// What happens at a host key that nobody has seen before. A changed one is always refused.
enum class FirstContact : std::uint8_t { Refuse, AcceptNew };

// The connection itself, as a child without a terminal: never asks, ends when the peer is silent
// for 15 s.
SshWords master_words(const SshHost& host, FirstContact first_contact);
// The same from a user's terminal, where ssh may ask for passwords and about host keys. Goes into
// the background once it is there and stays until exit_words.
SshWords terminal_master_words(const SshHost& host);
// A connection of its own that does nothing. 0: the host lets us in without a question.
SshWords probe_words(const SshHost& host);

SshWords check_words(const SshHost& host);  // 0: the master lives
SshWords exit_words(const SshHost& host);   // ends it

// Lets tunnel_socket() lead to `remote`: the absolute path of a socket, or "127.0.0.1:9200" where
// the other sshd forwards no sockets. InvalidArgument for any other text.
Result<SshWords> forward_words(const SshHost& host, std::string_view remote);
// Ends what forward_words began, with the same `remote`.
Result<SshWords> cancel_forward_words(const SshHost& host, std::string_view remote);

enum class Terminal : std::uint8_t { No, Yes };

// Any program, once ours are installed there: `llorch-pool rexec` decodes the words and becomes it,
// so that its input, output, exit code and signals are the command's own.
Result<SshWords> exec_words(const SshHost& host, const RemoteCommand& command, Terminal terminal);

// A constant script for sh, before our programs are there: one line without ' ! and \, which is
// what sh, csh and fish alike leave alone between single quotes.
SshWords script_words(const SshHost& host, std::string_view script);

// Where programs lie on a host, below the folder that logins begin in.
inline constexpr std::string_view kInstallFolder = ".local/lib/llorch";

}  // namespace llorch::remote
