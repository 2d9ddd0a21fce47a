#include "fleet/records.h"

#include "base/enum_names.h"

namespace llorch::fleet {
namespace {

using base::EnumNames;

constexpr EnumNames<JobKind::Embedding> kKinds("execute", "completion", "chat", "embedding");
constexpr EnumNames<JobClass::Batch> kClasses("interactive", "batch");
constexpr EnumNames<Holder::Connection> kHolders("detached", "followed", "connection");
constexpr EnumNames<Mode::Pin> kModes("fast", "spread", "pin");
constexpr EnumNames<JobState::Cancelled> kStates("queued", "dispatched", "running", "completed",
                                                 "failed", "cancelled");
constexpr EnumNames<StopCause::ShutDown> kStops("asked", "followers_gone", "deadline",
                                                "key_revoked", "shut_down");
constexpr EnumNames<LossCause::Refused> kLosses("crash", "out_of_memory", "hang", "host", "link",
                                                "worker_error", "refused");

}  // namespace

std::string_view name(JobKind kind) {
  return kKinds[kind];
}

std::string_view name(JobClass cls) {
  return kClasses[cls];
}

std::string_view name(Holder holder) {
  return kHolders[holder];
}

std::string_view name(Mode mode) {
  return kModes[mode];
}

std::string_view name(JobState state) {
  return kStates[state];
}

std::string_view name(StopCause cause) {
  return kStops[cause];
}

std::string_view name(LossCause cause) {
  return kLosses[cause];
}

std::optional<JobClass> job_class_from_name(std::string_view text) {
  return kClasses.find(text);
}

std::optional<Mode> mode_from_name(std::string_view text) {
  return kModes.find(text);
}

std::optional<JobState> job_state_from_name(std::string_view text) {
  return kStates.find(text);
}

}  // namespace llorch::fleet
