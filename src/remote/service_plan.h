// The pool of a host as a service of its user's systemd, where there is one: it then comes back
// after a crash and after a reboot. Pure: scripts and answers are values, for script_words (ssh.h).
// Why so: docs/decisions/0036.
#pragma once

#include <string>
#include <string_view>

namespace llorch::remote {

inline constexpr std::string_view kServiceUnit = "llorch-pool.service";

// Writes the unit, lets the user's services run without a login, and starts it unless a pool runs.
// Changes nothing where the host has no such thing, or does not let us.
std::string_view start_service_script();
// After the pool has been stopped: the unit goes, if it is there.
std::string_view end_service_script();

// What became of start_service_script.
struct ServiceAnswer {
  bool is_service = false;
  std::string sentence;  // for people: what the pool runs as, and why not as a service
};
ServiceAnswer parse_service(std::string_view output);

}  // namespace llorch::remote
