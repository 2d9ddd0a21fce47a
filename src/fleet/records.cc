#include "fleet/records.h"

#include <array>
#include <cstddef>
#include <span>

namespace llorch::fleet {
namespace {

constexpr std::array<std::string_view, 4> kKinds = {"execute", "completion", "chat", "embedding"};
constexpr std::array<std::string_view, 2> kClasses = {"interactive", "batch"};
constexpr std::array<std::string_view, 3> kHolders = {"detached", "followed", "connection"};
constexpr std::array<std::string_view, 3> kModes = {"fast", "spread", "pin"};
constexpr std::array<std::string_view, 6> kStates = {"queued",    "dispatched", "running",
                                                     "completed", "failed",     "cancelled"};
constexpr std::array<std::string_view, 5> kStops = {"asked", "followers_gone", "deadline",
                                                    "key_revoked", "shut_down"};
constexpr std::array<std::string_view, 7> kLosses = {"crash", "out_of_memory", "hang",   "host",
                                                     "link",  "worker_error",  "refused"};

template <class Value>
std::optional<Value> find_name(std::span<const std::string_view> names, std::string_view text) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == text) return static_cast<Value>(i);
  }
  return std::nullopt;
}

}  // namespace

std::string_view name(JobKind kind) {
  return kKinds[static_cast<std::size_t>(kind)];
}

std::string_view name(JobClass cls) {
  return kClasses[static_cast<std::size_t>(cls)];
}

std::string_view name(Holder holder) {
  return kHolders[static_cast<std::size_t>(holder)];
}

std::string_view name(Mode mode) {
  return kModes[static_cast<std::size_t>(mode)];
}

std::string_view name(JobState state) {
  return kStates[static_cast<std::size_t>(state)];
}

std::string_view name(StopCause cause) {
  return kStops[static_cast<std::size_t>(cause)];
}

std::string_view name(LossCause cause) {
  return kLosses[static_cast<std::size_t>(cause)];
}

std::optional<JobClass> job_class_from_name(std::string_view text) {
  return find_name<JobClass>(kClasses, text);
}

std::optional<Mode> mode_from_name(std::string_view text) {
  return find_name<Mode>(kModes, text);
}

std::optional<JobState> job_state_from_name(std::string_view text) {
  return find_name<JobState>(kStates, text);
}

}  // namespace llorch::fleet
