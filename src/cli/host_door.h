// The way from a command to other hosts: first contact in the user's terminal, and commands of
// theirs through the connection that stands. Private to cli/.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/fleet_command.h"
#include "remote/host_session.h"

namespace llorch::cli {

// What connections to hosts need on this machine.
struct HostDoor {
  std::filesystem::path ssh;
  std::filesystem::path run_folder;
  std::filesystem::path programs;  // that hosts get
};
Result<HostDoor> open_door(const FleetContext& context);

// A session whose connection stands. Where the host is met for the first time, or wants a password,
// ssh itself asks in the user's terminal; without one, `first_contact` says what to do.
Result<std::unique_ptr<remote::HostSession>> open_session(const HostDoor& door,
                                                          const std::string& host,
                                                          remote::FirstContact first_contact);

// "all", "a,b", "a": names of hosts; "all" asks the orchestrator. InvalidArgument: a name that ssh
// would not take.
Result<std::vector<std::string>> find_hosts(const FleetContext& context, const std::string& text);

// How a command gets to a host. Where no orchestrator can be asked, every name is one for ssh.
struct HostWay {
  std::string host;
  // Its pool came by itself: no ssh leads there, and one to its name may lead to another machine.
  bool came_by_itself = false;
  std::string pool_url = {};  // of a pool that did, and can be asked from this machine
};
std::vector<HostWay> find_ways(const FleetContext& context, const std::vector<std::string>& hosts);

// Why a command cannot be run on a host whose pool came by itself.
Error no_way_to(const HostWay& way);

// llorch-pool with these words on each host, side by side; this machine's own for "local". Of pools
// that came by themselves ours asks with --pool, where the words are such that it is the same, and
// where not, the answer is no_way_to.
enum class JoinedPools : std::uint8_t { Refuse, AskFromHere };
struct HostAnswer {
  std::string host;
  int exit_code = -1;
  std::string output;  // both streams, as they came (the last MiB); or why it could not be asked
};
// `on_output`: all that a host (by its place in `ways`) says, as it comes, from a thread of its
// own.
using OnHostOutput = std::function<void(std::size_t host, std::string_view bytes)>;
std::vector<HostAnswer> ask_hosts(const HostDoor& door, const std::vector<HostWay>& ways,
                                  const std::vector<std::string>& words, JoinedPools joined,
                                  const OnHostOutput& on_output = nullptr);

// How the orchestrator calls this machine.
inline constexpr std::string_view kLocalHost = "local";

}  // namespace llorch::cli
