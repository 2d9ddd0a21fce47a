// What a child process may touch: files by landlock, system calls by seccomp. The only place that
// knows either.
#pragma once

#include <linux/filter.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace llorch::base {

// Files, or folders with everything below. What is not there is left out; what is not listed cannot
// be opened. Links are followed when the rules are made: a link inside a listed folder leads
// nowhere unless its target is listed too.
struct ConfinementRules {
  std::vector<std::filesystem::path> readable;
  std::vector<std::filesystem::path> executable;  // readable too
  std::vector<std::filesystem::path> writable;    // readable too; a folder: also new files in it

  friend bool operator==(const ConfinementRules&, const ConfinementRules&) = default;
};

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
  bool limits_calls() const { return !filter_.empty(); }
  // "files by landlock (ABI 7), system calls by seccomp", "not confined: …".
  std::string describe() const;

  // In the child, with async-signal-safe calls only. False, with errno, when the kernel refuses.
  bool enter() const;

 private:
  Confinement() = default;

  int abi_ = 0;
  int ruleset_ = -1;                 // -1: no landlock
  std::vector<sock_filter> filter_;  // empty: no seccomp
};

}  // namespace llorch::base
