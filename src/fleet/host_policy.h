// The life of one host as a pure function: what is known about it and the time go in, what to do
// comes out. No ssh, no tunnel and no poll is touched here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/handles.h"

namespace llorch::fleet {

// Joined: its pool came to us by itself; nothing can be done about it from here.
enum class HostKind : std::uint8_t { Local, Ssh, Joined };
enum class HostState : std::uint8_t {
  Unknown,     // nobody wants it up
  Preflight,   // is it reachable, are we allowed in, does it fit
  Installing,  // programs are copied and read back
  Starting,    // its pool was started and has not answered yet
  Connected,   // takes work
  Degraded,    // the tunnel or the poll fails: no new work, tried again and again
  Gone,        // its workers count as lost; tried less and less often, unless that is useless
};
std::string_view name(HostState state);

enum class HostAction : std::uint8_t { Preflight, Install, Start, RollBack, Connect, Stop };
std::string_view name(HostAction action);

inline constexpr std::chrono::seconds kHeartbeat{15};
inline constexpr int kHeartbeatsMissed = 3;
inline constexpr std::chrono::seconds kStartPatience{30};
inline constexpr std::chrono::seconds kBreakPatience{45};  // for a connection to come back
inline constexpr Millis kFirstBackOff{500};
inline constexpr Millis kFirstGonePause{4'000};
inline constexpr Millis kLongestBackOff{60'000};

// What became of the connection in a step that failed.
enum class Link : std::uint8_t {
  Held,    // it is not to blame
  Broke,   // it stood when the step began, and is gone: nothing is known of the host
  Absent,  // it could not be made
};

struct HostStepOutcome {
  bool ok = false;
  std::string reason;     // a plain sentence
  bool is_final = false;  // trying again is useless: host key changed, login refused, wrong CPU
  // Of an installation: what is there now is not what ran, so the pool must be started anew.
  bool is_new_version = false;
  Link link = Link::Held;
};

struct HostFacts {
  HostKind kind = HostKind::Ssh;
  HostState state = HostState::Unknown;
  TimePoint since{};                    // of the state
  TimePoint last_seen{};                // its pool's newest answer
  std::optional<HostAction> under_way;  // one at a time
  bool was_seen = false;                // since this state began
  bool start_due = false;               // the order to start its pool has not been given yet
  bool stop_due = false;                // likewise, to stop it
  bool loss_due = false;       // it was taken down and its workers have not been given up yet
  bool was_installed = false;  // our programs are there
  // The next step of an upgrade: it takes work until its new version is installed.
  std::optional<HostAction> due;
  bool is_new_version = false;  // was installed and has not come up yet
  bool rolled_back = false;
  bool by_hand = false;  // only `up` tries again
  std::uint32_t tries = 0;
  TimePoint next_try{};
  // Since when connections break in the middle of steps; until one works or the patience ends.
  TimePoint broke_at = TimePoint::max();
  std::uint32_t jitter = 0;  // any number, another for each host: not all try at once
  std::string reason;        // why it is degraded or gone
  std::string note;          // why it does not run the programs that it was to get
};

struct HostStep {
  std::vector<HostAction> actions;  // at most one, and none while one is under way
  bool came_up = false;             // takes work from now on
  bool went_down = false;           // takes none from now on
  bool was_lost = false;            // its workers are lost
  TimePoint wake{};                 // when to ask again if nothing happens before
};

// What happened. Each changes the facts only; ask next_step afterwards.
//
// A host over ssh that is asked up and takes work already is upgraded: looked at and given the
// programs that it lacks while it works, and where they are new its pool is started anew. Meanwhile
// it takes no work, and its workers stay. What runs is left alone where anything before that fails.
void ask_up(HostFacts& facts, TimePoint now);
void ask_down(HostFacts& facts, TimePoint now);
void note_seen(HostFacts& facts, TimePoint now);
void note_lost(HostFacts& facts, std::string reason, TimePoint now);  // tunnel or poll fails
void note_step(HostFacts& facts, HostAction action, const HostStepOutcome& outcome, TimePoint now);

// Decides and moves the facts on.
HostStep next_step(HostFacts& facts, TimePoint now);

inline bool takes_work(const HostFacts& facts) {
  return facts.state == HostState::Connected;
}
// It is not there, and may come back without anybody's help.
bool may_return(const HostFacts& facts);

}  // namespace llorch::fleet
