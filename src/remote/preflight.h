// Whether a host can run our programs: a script that asks it, and what its answers mean. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::remote {

// For script_words. Each answer is a line that begins with "llorch:", so that what a login script
// prints does not matter.
std::string_view preflight_script();

// What the host said; empty or 0 where it did not.
struct HostFacts {
  std::string system;           // "Linux"
  std::string machine;          // "x86_64"
  std::string libc;             // "glibc 2.36"
  std::string home;             // where logins begin
  std::int64_t free_bytes = 0;  // there
  bool can_write = false;       // there
  bool has_tools = false;       // sha256sum and mv -T
  bool has_user_systemd = false;
};

// Corrupt when an answer is missing; shows the last lines of what came instead.
Result<HostFacts> parse_preflight(std::string_view output);

struct HostNeeds {
  std::vector<std::string> machines = {"x86_64"};  // that programs exist for
  int min_glibc_minor = 31;                        // of glibc 2
  std::int64_t needed_bytes = 0;                   // for programs that are yet to be sent
};

// One thing that was looked at, in a sentence that also says what to do where it failed.
struct Finding {
  std::string subject;  // "system", "processor", "libc", "disk", "tools"
  bool passed = false;
  std::string sentence;
};

// One finding for each of those, failed or not.
std::vector<Finding> judge_host(std::string_view host, const HostFacts& facts,
                                const HostNeeds& needs);

bool all_passed(const std::vector<Finding>& findings);

}  // namespace llorch::remote
