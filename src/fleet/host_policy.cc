#include "fleet/host_policy.h"

#include <algorithm>
#include <array>
#include <utility>

namespace llorch::fleet {
namespace {

constexpr std::array<std::string_view, 7> kStates = {
    "unknown", "preflight", "installing", "starting", "connected", "degraded", "gone"};
constexpr std::array<std::string_view, 6> kActions = {"preflight", "install", "start",
                                                      "roll_back", "connect", "stop"};
constexpr std::chrono::hours kNothingToDo{1};

void enter(HostFacts& facts, HostState state, TimePoint now) {
  facts.state = state;
  facts.since = now;
  facts.was_seen = false;
  facts.next_try = now;
}

// Twice as long each time, and between a half and the whole of that.
Millis back_off(const HostFacts& facts) {
  const std::uint32_t doublings = std::min(facts.tries, 10U);
  const Millis whole = std::min(kLongestBackOff, kFirstBackOff * (1U << doublings));
  const std::uint32_t mixed = (facts.jitter + facts.tries) * 2654435761U;
  return whole / 2 + whole / 2 * (mixed >> 16U) / 65536;
}

// It may be switched off for days, or have stumbled over a cable.
Millis gone_pause(const HostFacts& facts) {
  return std::max(kFirstGonePause, back_off(facts));
}

void enter_gone(HostFacts& facts, TimePoint now) {
  enter(facts, HostState::Gone, now);
  facts.broke_at = TimePoint::max();
  facts.next_try = now + gone_pause(facts);
  ++facts.tries;
}

void lose(HostFacts& facts, HostStep& step, TimePoint now) {
  enter_gone(facts, now);
  step.was_lost = true;
}

void act(HostFacts& facts, HostStep& step, HostAction action) {
  if (facts.under_way) return;
  facts.under_way = action;
  step.actions.push_back(action);
}

void connect_again(HostFacts& facts, HostStep& step, TimePoint now, Millis pause) {
  if (facts.kind == HostKind::Joined || facts.by_hand || facts.under_way) return;
  if (now < facts.next_try) return;
  ++facts.tries;
  facts.next_try = now + pause;
  act(facts, step, facts.kind == HostKind::Local ? HostAction::Start : HostAction::Connect);
}

bool come_up(HostFacts& facts, HostStep& step, TimePoint now) {
  enter(facts, HostState::Connected, now);
  facts.tries = 0;
  facts.rolled_back = false;
  facts.was_installed = true;
  facts.is_new_version = false;
  facts.reason.clear();
  step.came_up = true;
  return true;
}

// The last part of an upgrade, as soon as its programs are there.
bool start_anew(HostFacts& facts, HostStep& step, TimePoint now) {
  if (facts.due != HostAction::Start || facts.under_way) return false;
  facts.due.reset();
  step.went_down = facts.state == HostState::Connected;
  enter(facts, HostState::Starting, now);
  facts.start_due = true;
  facts.reason.clear();
  return true;
}

bool advance_starting(HostFacts& facts, HostStep& step, TimePoint now) {
  if (facts.was_seen) return come_up(facts, step, now);
  if (facts.start_due && !facts.under_way && now >= facts.next_try) {
    facts.start_due = false;
    act(facts, step, HostAction::Start);
  }
  if (facts.under_way || facts.start_due || now < facts.since + kStartPatience) return false;
  if (facts.reason.empty()) facts.reason = "its pool was started and did not answer within 30 s";
  if (facts.is_new_version && !facts.rolled_back) {
    facts.rolled_back = true;
    facts.since = now;
    act(facts, step, HostAction::RollBack);
    return false;
  }
  lose(facts, step, now);
  return true;
}

bool advance_degraded(HostFacts& facts, HostStep& step, TimePoint now) {
  if (start_anew(facts, step, now)) return true;
  if (facts.was_seen) return come_up(facts, step, now);
  if (now >= facts.last_seen + kHeartbeatsMissed * kHeartbeat) {
    lose(facts, step, now);
    return true;
  }
  connect_again(facts, step, now, back_off(facts));
  return false;
}

bool advance_connected(HostFacts& facts, HostStep& step, TimePoint now) {
  if (start_anew(facts, step, now)) return true;
  const bool is_silent = now > facts.last_seen + kHeartbeat;
  if (facts.reason.empty() && !is_silent) {
    if (facts.due && !facts.under_way && now >= facts.next_try)
      act(facts, step, *std::exchange(facts.due, std::nullopt));
    return false;
  }
  if (facts.reason.empty()) facts.reason = "its pool has not answered for 15 s";
  enter(facts, HostState::Degraded, now);
  facts.tries = 0;
  step.went_down = true;
  return true;
}

bool advance_gone(HostFacts& facts, HostStep& step, TimePoint now) {
  if (start_anew(facts, step, now)) return true;
  if (facts.was_seen) return come_up(facts, step, now);
  const bool is_unfinished = !facts.was_installed || (facts.is_new_version && !facts.rolled_back);
  const bool sets_up = facts.kind == HostKind::Ssh && is_unfinished && !facts.by_hand;
  if (sets_up && !facts.under_way && now >= facts.next_try) {
    enter(facts, HostState::Preflight, now);
    return true;
  }
  if (!sets_up) connect_again(facts, step, now, gone_pause(facts));
  return false;
}

void advance_down(HostFacts& facts, HostStep& step) {
  if (!facts.stop_due || facts.under_way) return;
  facts.stop_due = false;
  act(facts, step, HostAction::Stop);
}

// One transition; false when the state stays.
bool advance(HostFacts& facts, HostStep& step, TimePoint now) {
  switch (facts.state) {
    case HostState::Unknown:
      advance_down(facts, step);
      return false;
    case HostState::Preflight:
      if (now >= facts.next_try) act(facts, step, HostAction::Preflight);
      return false;
    case HostState::Installing:
      if (now >= facts.next_try) act(facts, step, HostAction::Install);
      return false;
    case HostState::Starting:
      return advance_starting(facts, step, now);
    case HostState::Connected:
      return advance_connected(facts, step, now);
    case HostState::Degraded:
      return advance_degraded(facts, step, now);
    case HostState::Gone:
      return advance_gone(facts, step, now);
  }
  return false;
}

TimePoint find_wake(const HostFacts& facts, TimePoint now) {
  TimePoint wake = now + kNothingToDo;
  const auto at = [&wake](TimePoint time) { wake = std::min(wake, time); };
  const bool tries = facts.kind != HostKind::Joined && !facts.by_hand && !facts.under_way;
  const bool waits = facts.state == HostState::Preflight || facts.state == HostState::Installing ||
                     (facts.state == HostState::Starting && facts.start_due) ||
                     (facts.state == HostState::Connected && facts.due.has_value());
  if (waits && !facts.under_way) at(facts.next_try);
  if (facts.state == HostState::Starting && !facts.under_way && !facts.start_due)
    at(facts.since + kStartPatience);
  if (facts.state == HostState::Connected) at(facts.last_seen + kHeartbeat + Millis(1));
  if (facts.state == HostState::Degraded) at(facts.last_seen + kHeartbeatsMissed * kHeartbeat);
  if (facts.state >= HostState::Degraded && tries) at(facts.next_try);
  return wake;
}

void fail(HostFacts& facts, const HostStepOutcome& outcome, TimePoint now) {
  facts.reason = outcome.reason;
  facts.by_hand = outcome.is_final;
  facts.loss_due = true;  // of the workers that it had before
  enter_gone(facts, now);
}

// Whether a step that failed is to be tried again soon, because the connection broke in its middle
// or has not come back since. A host that was never reached is told about at once.
bool tries_again(HostFacts& facts, const HostStepOutcome& outcome, TimePoint now) {
  const bool is_first = facts.state == HostState::Preflight && facts.broke_at == TimePoint::max();
  const bool is_links = outcome.link == Link::Broke || (outcome.link == Link::Absent && !is_first);
  if (outcome.ok || outcome.is_final || !is_links) return false;
  if (facts.broke_at == TimePoint::max()) {
    facts.broke_at = now;
    facts.tries = 0;
  }
  if (now >= facts.broke_at + kBreakPatience) {
    facts.broke_at = TimePoint::max();
    return false;
  }
  facts.reason = outcome.reason;
  facts.next_try = now + back_off(facts);
  ++facts.tries;
  return true;
}

// One of an upgrade's first steps has ended: nothing that runs has been touched.
void note_upgrade(HostFacts& facts, HostAction action, const HostStepOutcome& outcome,
                  TimePoint now) {
  if (tries_again(facts, outcome, now)) {
    facts.due = action;
  } else if (!outcome.ok) {
    facts.note = "its programs stay as they are: " + outcome.reason;
  } else if (action == HostAction::Preflight) {
    facts.due = HostAction::Install;
  } else if (outcome.is_new_version) {
    facts.is_new_version = true;
    facts.due = HostAction::Start;
  }
}

void note_start(HostFacts& facts, HostAction action, const HostStepOutcome& outcome,
                TimePoint now) {
  if (action == HostAction::Start && tries_again(facts, outcome, now)) {
    facts.start_due = true;
    return;
  }
  if (!outcome.ok && facts.rolled_back) {
    HostStepOutcome both = outcome;
    both.reason = facts.reason + "; going back to the version before: " + outcome.reason;
    return fail(facts, both, now);
  }
  // Its programs are not to blame, nor could they be changed now.
  if (!outcome.ok && outcome.link != Link::Held) return fail(facts, outcome, now);
  if (!outcome.ok) facts.reason = outcome.reason;
  if (outcome.ok && action == HostAction::RollBack)
    facts.note = "it runs the version before, because of the new one: " + facts.reason;
  facts.since = outcome.ok ? now : now - kStartPatience;
}

}  // namespace

std::string_view name(HostState state) {
  return kStates[static_cast<std::size_t>(state)];
}

std::string_view name(HostAction action) {
  return kActions[static_cast<std::size_t>(action)];
}

bool may_return(const HostFacts& facts) {
  const bool is_there = facts.state == HostState::Unknown || facts.state == HostState::Connected;
  return !is_there && !(facts.state == HostState::Gone && facts.by_hand);
}

void ask_up(HostFacts& facts, TimePoint now) {
  facts.by_hand = false;
  facts.stop_due = false;
  facts.broke_at = TimePoint::max();
  if (facts.state == HostState::Connected && facts.kind == HostKind::Ssh) {
    facts.note.clear();
    facts.due = HostAction::Preflight;
    return;
  }
  const bool is_up = facts.state == HostState::Connected || facts.state == HostState::Starting ||
                     facts.state == HostState::Preflight || facts.state == HostState::Installing;
  if (is_up) return;
  facts.reason.clear();
  facts.note.clear();
  facts.due.reset();
  facts.tries = 0;
  facts.rolled_back = false;
  if (facts.kind == HostKind::Ssh) {
    enter(facts, HostState::Preflight, now);
  } else if (facts.kind == HostKind::Local) {
    enter(facts, HostState::Starting, now);
    facts.start_due = true;
  } else {
    enter(facts, HostState::Gone, now);  // until it comes
  }
}

void ask_down(HostFacts& facts, TimePoint now) {
  if (facts.state == HostState::Unknown) return;
  facts.loss_due = true;
  facts.stop_due = facts.kind != HostKind::Joined;
  facts.start_due = false;
  facts.due.reset();
  enter(facts, HostState::Unknown, now);
  facts.reason = "was taken down";
  facts.note.clear();
}

void note_seen(HostFacts& facts, TimePoint now) {
  if (facts.state == HostState::Unknown) return;
  facts.last_seen = now;
  // While an upgraded pool is being started, it may be the one before it that was seen.
  const bool is_early = facts.kind == HostKind::Ssh && facts.state == HostState::Starting &&
                        (facts.start_due || facts.under_way.has_value());
  facts.was_seen = facts.state != HostState::Connected && !is_early;
  if (facts.state == HostState::Connected) facts.reason.clear();
}

void note_lost(HostFacts& facts, std::string reason, TimePoint now) {
  // Told while it is waited for.
  const bool is_awaited =
      facts.state == HostState::Starting && !facts.start_due && !facts.under_way;
  if (is_awaited && !reason.empty())
    facts.reason = "its pool does not answer as it should: " + reason;
  if (facts.state != HostState::Connected) return;
  facts.last_seen = std::min(facts.last_seen, now);
  facts.reason = reason.empty() ? "the connection to its pool was lost" : std::move(reason);
}

void note_step(HostFacts& facts, HostAction action, const HostStepOutcome& outcome, TimePoint now) {
  if (facts.under_way != action) return;  // of another life
  facts.under_way.reset();
  if (outcome.ok) facts.broke_at = TimePoint::max();
  const bool is_start = action == HostAction::Start || action == HostAction::RollBack;
  const bool is_upgrade = action == HostAction::Preflight || action == HostAction::Install;
  switch (facts.state) {
    case HostState::Preflight:
      if (action != HostAction::Preflight) return;  // of the time before it was asked up
      if (outcome.ok) return enter(facts, HostState::Installing, now);
      if (!tries_again(facts, outcome, now)) fail(facts, outcome, now);
      return;
    case HostState::Installing:
      if (action != HostAction::Install) return;
      if (tries_again(facts, outcome, now)) return;
      if (!outcome.ok) return fail(facts, outcome, now);
      enter(facts, HostState::Starting, now);
      facts.was_installed = true;
      facts.is_new_version = outcome.is_new_version;
      facts.start_due = true;
      facts.reason.clear();
      return;
    case HostState::Starting:
      if (is_start) note_start(facts, action, outcome, now);
      return;
    case HostState::Degraded:
    case HostState::Gone:
      if (is_upgrade) return note_upgrade(facts, action, outcome, now);
      if (outcome.ok) return;  // it will be seen
      facts.reason = outcome.reason;
      facts.by_hand = outcome.is_final;
      return;
    case HostState::Connected:
      if (is_upgrade) note_upgrade(facts, action, outcome, now);
      return;
    case HostState::Unknown:
      return;
  }
}

HostStep next_step(HostFacts& facts, TimePoint now) {
  HostStep step;
  step.was_lost = std::exchange(facts.loss_due, false);
  while (advance(facts, step, now)) {
  }
  step.wake = find_wake(facts, now);
  return step;
}

}  // namespace llorch::fleet
