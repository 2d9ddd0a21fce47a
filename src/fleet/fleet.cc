#include "fleet/fleet.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace llorch::fleet {
namespace {

constexpr std::size_t kLabelsMax = 64;
constexpr std::array<std::string_view, 7> kPhases = {"accepting", "queued", "dispatched", "running",
                                                     "moving",    "ending", "closing"};

}  // namespace

std::string_view name(Phase phase) {
  return kPhases[static_cast<std::size_t>(phase)];
}

JobState shown_state(Phase phase) {
  switch (phase) {
    case Phase::Accepting:
    case Phase::Queued:
      return JobState::Queued;
    case Phase::Dispatched:
      return JobState::Dispatched;
    default:
      return JobState::Running;
  }
}

Job* find_job(Fleet& fleet, const JobId& id) {
  const auto found = fleet.job_by_id.find(id);
  return found == fleet.job_by_id.end() ? nullptr : &fleet.jobs[found->second];
}

const Job* find_job(const Fleet& fleet, const JobId& id) {
  const auto found = fleet.job_by_id.find(id);
  return found == fleet.job_by_id.end() ? nullptr : &fleet.jobs[found->second];
}

KeyIndex find_or_add_key(Fleet& fleet, KeyId id) {
  const auto [found, is_new] =
      fleet.key_by_id.try_emplace(id, static_cast<KeyIndex>(fleet.keys.size()));
  if (is_new) fleet.keys.push_back({.id = id});
  return found->second;
}

HostIndex find_or_add_host(Fleet& fleet, const HostId& id) {
  const auto [found, is_new] =
      fleet.host_by_id.try_emplace(id, static_cast<HostIndex>(fleet.hosts.size()));
  if (is_new) {
    Host& host = fleet.hosts.emplace_back();
    host.id = id;
    host.facts.jitter = found->second;
  }
  return found->second;
}

HostIndex find_host(const Fleet& fleet, const HostId& id) {
  const auto found = fleet.host_by_id.find(id);
  return found == fleet.host_by_id.end() ? kNone : found->second;
}

ModelIndex find_or_add_model(Fleet& fleet, const ModelHash& hash) {
  const auto [found, is_new] =
      fleet.model_by_hash.try_emplace(hash, static_cast<ModelIndex>(fleet.models.size()));
  if (is_new) {
    Model& model = fleet.models.emplace_back();
    model.hash = hash;
    model.speed = fleet.speeds.find_or_add(found->second, kNone, {});
  }
  return found->second;
}

ModelIndex find_model(const Fleet& fleet, const ModelHash& hash) {
  const auto found = fleet.model_by_hash.find(hash);
  return found == fleet.model_by_hash.end() ? kNone : found->second;
}

JobIndex index_of(const Fleet& fleet, const Job& job) {
  const auto index = static_cast<JobIndex>(&job - fleet.jobs.data());
  DCHECK(index < fleet.jobs.size(), "a job of this fleet");
  return index;
}

std::uint64_t host_labels(Fleet& fleet, const std::vector<std::string>& labels) {
  std::uint64_t bits = 0;
  for (const std::string& label : labels) {
    const auto found = std::find(fleet.labels.begin(), fleet.labels.end(), label);
    const auto index = static_cast<std::size_t>(found - fleet.labels.begin());
    // The last bit is never given: nobody has all of them.
    if (index + 1 >= kLabelsMax) continue;
    if (found == fleet.labels.end()) fleet.labels.push_back(label);
    bits |= std::uint64_t{1} << index;
  }
  return bits;
}

std::uint64_t needed_labels(const Fleet& fleet, const std::vector<std::string>& labels) {
  std::uint64_t bits = 0;
  for (const std::string& label : labels) {
    const auto found = std::find(fleet.labels.begin(), fleet.labels.end(), label);
    if (found == fleet.labels.end()) return ~std::uint64_t{0};
    bits |= std::uint64_t{1} << static_cast<std::size_t>(found - fleet.labels.begin());
  }
  return bits;
}

UnixMs wall_ms(const Fleet& fleet, TimePoint now) {
  return fleet.wall_offset_ms + std::chrono::duration_cast<Millis>(now.time_since_epoch()).count();
}

}  // namespace llorch::fleet
