// What a child process may touch: files and TCP ports by landlock, system calls by seccomp. The
// only place that knows either.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::base {

// Ports of TCP, on every address; no other kind of network socket can be made. Without any port
// there are no network sockets at all.
struct NetworkRules {
  std::vector<std::uint16_t> bind;
  std::vector<std::uint16_t> connect;
  bool local_sockets = false;  // those with a path

  friend bool operator==(const NetworkRules&, const NetworkRules&) = default;
};

// Files, or folders with everything below. What is not there is left out; what is not listed cannot
// be opened. Links are followed when the rules are made: a link inside a listed folder leads
// nowhere unless its target is listed too. A shared library needs to be readable only.
struct ConfinementRules {
  std::vector<std::filesystem::path> readable;
  std::vector<std::filesystem::path> executable;  // readable too
  std::vector<std::filesystem::path> writable;    // readable too; a folder: also new files in it
  std::optional<NetworkRules> network;            // none: the network is open

  friend bool operator==(const ConfinementRules&, const ConfinementRules&) = default;
};

// What a program of ours needs to run at all: itself and the loader to execute, the folders of
// shared libraries to read, also those of a user's own (`library_path` is LD_LIBRARY_PATH; relative
// ones are left out). No other program can be read or executed, and the network is closed.
ConfinementRules rules_to_run(const std::filesystem::path& program, std::string_view library_path);

// Rules that are ready to be entered between fork and exec, and hold for everything the program
// starts. Besides the files, calls that no program of ours needs (tracing others, mounting, kernel
// modules, namespaces, keys, io_uring …) are refused with EPERM. Where the kernel lacks one half,
// the other still holds, and describe() says so. Immutable.
class Confinement {
 public:
  static Result<std::shared_ptr<const Confinement>> prepare(const ConfinementRules& rules);
  ~Confinement();
  Confinement(const Confinement&) = delete;
  Confinement& operator=(const Confinement&) = delete;

  bool limits_files() const { return ruleset_ >= 0; }
  bool limits_ports() const { return limits_ports_; }
  bool limits_calls() const { return !filter_.empty(); }
  // "files and ports by landlock (ABI 7), system calls by seccomp", "not confined: …".
  std::string describe() const;

  // In the child, with async-signal-safe calls only; what is below /proc/self is then readable too.
  // False, with errno, when the kernel refuses.
  bool enter() const;

 private:
  Confinement() = default;

  int abi_ = 0;
  int ruleset_ = -1;  // -1: no landlock
  bool wants_ports_ = false;
  bool limits_ports_ = false;
  std::vector<sock_filter> filter_;  // empty: no seccomp
};

}  // namespace llorch::base
