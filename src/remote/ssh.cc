#include "remote/ssh.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/digest.h"
#include "base/utf8.h"

namespace llorch::remote {
namespace {

constexpr std::size_t kMaxNameBytes = 255;
// Of the SHA-256 of the host's name: 64 bits, so that no two hosts of a fleet share a socket.
constexpr std::size_t kHashDigits = 16;
// The master listens under this many bytes more ("." and 16 random letters) before it takes its
// name.
constexpr std::size_t kMasterSuffixBytes = 17;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_plain_name(std::string_view part) {
  return !part.empty() && is_letter_or_digit(part.front()) &&
         std::all_of(part.begin(), part.end(), [](char c) {
           return is_letter_or_digit(c) || std::string_view("._:%-").find(c) != std::string::npos;
         });
}

Status check_name(std::string_view name) {
  const std::size_t at = name.find('@');
  const bool is_good = at == std::string_view::npos ? is_plain_name(name)
                                                    : is_plain_name(name.substr(0, at)) &&
                                                          is_plain_name(name.substr(at + 1));
  if (name == "all") {
    return Error{ErrorCode::InvalidArgument,
                 "all means every host (--host all), so none can be called so; give it another "
                 "name in ~/.ssh/config"};
  }
  if (is_good && name.size() <= kMaxNameBytes) return ok_status();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} is no host: expected a name of ~/.ssh/config, host or user@host, of "
                           "letters, digits and . _ : % -, each part beginning with a letter or "
                           "digit, at most {} characters",
                           base::quoted(name), kMaxNameBytes)};
}

// Paths that ssh takes as they are: it would expand % and $, split at : and take \ and [ away.
bool is_plain_path(std::string_view path) {
  return path.starts_with('/') && std::all_of(path.begin(), path.end(), [](char c) {
           return is_letter_or_digit(c) || static_cast<unsigned char>(c) >= 0x80 ||
                  std::string_view("/._-+,=@").find(c) != std::string::npos;
         });
}

bool is_loopback_port(std::string_view text) {
  constexpr std::string_view kHost = "127.0.0.1:";
  if (!text.starts_with(kHost)) return false;
  text.remove_prefix(kHost.size());
  return !text.empty() && text.size() <= 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

void append(SshWords& words, std::initializer_list<std::string_view> more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Liveness, and nothing of the user's configuration that would do more than connect.
void append_connection(SshWords& words) {
  append(words, {"-o", "ConnectTimeout=10",
                 "-o", "ServerAliveInterval=5",
                 "-o", "ServerAliveCountMax=3",
                 "-o", "ClearAllForwardings=yes",
                 "-o", "StreamLocalBindUnlink=yes",
                 "-o", "RemoteCommand=none",
                 "-o", "PermitLocalCommand=no",
                 "-o", "ForwardAgent=no",
                 "-o", "ForwardX11=no",
                 "-o", "LogLevel=ERROR"});
}

// Through the master or not at all.
SshWords via(const SshHost& host) {
  return {"-F", "none", "-o", "ProxyCommand=false", "-S", host.control_socket().string()};
}

SshWords ask_master(const SshHost& host, std::string_view what) {
  SshWords words = via(host);
  append(words, {"-O", what, "--", host.name()});
  return words;
}

Result<SshWords> forward(const SshHost& host, std::string_view what, std::string_view remote) {
  const bool is_socket = is_plain_path(remote) && remote.size() <= kMaxSocketPathBytes;
  if (!is_socket && !is_loopback_port(remote))
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("{} cannot be the other end of a tunnel: expected 127.0.0.1:PORT or the "
                    "path of a socket, absolute, at most {} bytes, without spaces and % $ : "
                    "\\ [ ]",
                    base::quoted(remote), kMaxSocketPathBytes)};
  SshWords words = via(host);
  append(words, {"-O", what, "-L"});
  words.push_back(fmt::format("{}:{}", host.tunnel_socket().string(), remote));
  append(words, {"--", host.name()});
  return words;
}

SshWords command_words(const SshHost& host, Terminal terminal, std::string command) {
  SshWords words = via(host);
  append(words, {terminal == Terminal::Yes ? "-tt" : "-T", "--", host.name()});
  words.push_back(std::move(command));
  return words;
}

}  // namespace

Result<SshHost> SshHost::make(std::string_view name, const std::filesystem::path& run_folder) {
  if (const Status good = check_name(name); !good.ok()) return good.error();
  const std::string hash = base::sha256_hex(name).substr(0, kHashDigits);
  SshHost host;
  host.name_ = name;
  host.control_ = run_folder / ("c" + hash);
  host.tunnel_ = run_folder / ("t" + hash);
  const std::size_t length = host.control_.string().size() + kMasterSuffixBytes;
  if (length > kMaxSocketPathBytes || !is_plain_path(host.control_.string()))
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("{} cannot hold the sockets of connections: expected an absolute path of "
                    "at most {} bytes without spaces and % $ : \\ [ ]; let XDG_RUNTIME_DIR "
                    "or LLORCH_HOME name another folder",
                    base::quoted(run_folder.string()),
                    kMaxSocketPathBytes - kMasterSuffixBytes - kHashDigits - 2)};
  return host;
}

SshWords master_words(const SshHost& host, FirstContact first_contact) {
  SshWords words = {"-M", "-N", "-n", "-T", "-S", host.control_socket().string()};
  append(words, {"-o", "ControlPersist=no", "-o", "BatchMode=yes", "-o",
                 first_contact == FirstContact::Refuse ? "StrictHostKeyChecking=yes"
                                                       : "StrictHostKeyChecking=accept-new"});
  append_connection(words);
  append(words, {"--", host.name()});
  return words;
}

SshWords terminal_master_words(const SshHost& host) {
  SshWords words = {"-M", "-N", "-f", "-T", "-S", host.control_socket().string()};
  append(words, {"-o", "ControlPersist=yes", "-o", "StrictHostKeyChecking=ask"});
  append_connection(words);
  append(words, {"--", host.name()});
  return words;
}

SshWords probe_words(const SshHost& host) {
  SshWords words = {"-n", "-T", "-S", "none"};
  append(words, {"-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"});
  append_connection(words);
  append(words, {"--", host.name(), "exit 0"});
  return words;
}

SshWords check_words(const SshHost& host) {
  return ask_master(host, "check");
}

SshWords exit_words(const SshHost& host) {
  return ask_master(host, "exit");
}

Result<SshWords> forward_words(const SshHost& host, std::string_view remote) {
  return forward(host, "forward", remote);
}

Result<SshWords> cancel_forward_words(const SshHost& host, std::string_view remote) {
  return forward(host, "cancel", remote);
}

Result<SshWords> exec_words(const SshHost& host, const RemoteCommand& command, Terminal terminal) {
  const Result<std::string> encoded = encode_remote(command);
  if (!encoded.ok()) return encoded.error();
  return command_words(
      host, terminal,
      fmt::format("exec {}/current/llorch-pool rexec {}", kInstallFolder, *encoded));
}

SshWords script_words(const SshHost& host, std::string_view script) {
  CHECK(script.find_first_of("'!\\\n") == std::string_view::npos,
        "a script that a shell would read");
  return command_words(host, Terminal::No, fmt::format("exec sh -c '{}'", script));
}

}  // namespace llorch::remote
