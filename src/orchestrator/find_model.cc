#include "orchestrator/find_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/similar_names.h"
#include "orchestrator/views.h"

namespace llorch::orchestrator {
namespace {

using fleet::Host;
using fleet::HostState;

constexpr std::size_t kHostsNamed = 4;
constexpr double kComingRetryMs = 1000;
constexpr double kAwayRetryMs = 10'000;  // hosts that are gone are tried once a minute

// It takes work, or is likely to within the time that jobs wait.
bool is_near(const Host& host) {
  return host.facts.state != HostState::Gone && host.facts.state != HostState::Unknown;
}

bool has_near_host(const fleet::Fleet& fleet, const fleet::Model& model) {
  return std::any_of(model.hosts.begin(), model.hosts.end(),
                     [&](fleet::HostIndex host) { return is_near(fleet.hosts[host]); });
}

bool is_named(const fleet::Model& model, std::string_view name) {
  return model.name == name || fleet::text(model.hash) == name;
}

// A host that has not said yet which models it has.
std::optional<Error> find_coming_host(const fleet::Fleet& fleet) {
  for (const Host& host : fleet.hosts) {
    if (is_near(host) && host.facts.state != HostState::Connected && !host.was_seen) {
      return Error{ErrorCode::Unavailable,
                   "host " + host.id + " is still coming up and may have this model; try again"};
    }
  }
  return std::nullopt;
}

// Hosts that had it when they were last seen, and are not there.
std::vector<fleet::HostId> find_away_hosts(const fleet::Fleet& fleet, std::string_view name) {
  std::vector<fleet::HostId> away;
  for (const fleet::Model& model : fleet.models) {
    if (!is_named(model, name)) continue;
    for (const fleet::HostIndex index : model.hosts) {
      const auto seen = fleet.hosts[index].models.find(
          static_cast<fleet::ModelIndex>(&model - fleet.models.data()));
      const bool has_it =
          seen != fleet.hosts[index].models.end() && seen->second.missing_bytes == 0;
      if (has_it && !is_near(fleet.hosts[index])) away.push_back(fleet.hosts[index].id);
    }
  }
  for (fleet::HostId& host : fleet.memory.hosts_of(name)) {
    const fleet::HostIndex index = fleet::find_host(fleet, host);
    // What a host has said since the start is newer.
    if (index == fleet::kNone || !fleet.hosts[index].was_seen) away.push_back(std::move(host));
  }
  std::sort(away.begin(), away.end());
  away.erase(std::unique(away.begin(), away.end()), away.end());
  return away;
}

struct Absence {
  std::string since;
  std::string reason;
  std::string remedy;
};

Absence describe_absence(const fleet::Fleet& fleet, const fleet::HostId& id) {
  Absence absence;
  const fleet::HostIndex index = fleet::find_host(fleet, id);
  const Host* host = index == fleet::kNone ? nullptr : &fleet.hosts[index];
  fleet::UnixMs seen_ms = 0;
  if (const auto kept = fleet.memory.hosts().find(id); kept != fleet.memory.hosts().end())
    seen_ms = kept->second.seen_ms;
  if (host != nullptr && host->was_seen)
    seen_ms = std::max(seen_ms, fleet::wall_ms(fleet, host->facts.last_seen));
  absence.since = time_text(seen_ms);
  if (host != nullptr) absence.reason = host->facts.reason;
  const bool came_by_itself = host != nullptr && host->facts.kind == fleet::HostKind::Joined;
  const bool is_local = host != nullptr && host->facts.kind == fleet::HostKind::Local;
  if (came_by_itself) {
    absence.remedy = "start its pool there, it joins by itself";
  } else {
    absence.remedy = is_local ? "llorch up" : "llorch up " + id;
  }
  return absence;
}

Error describe_away(const fleet::Fleet& fleet, std::string_view name,
                    const std::vector<fleet::HostId>& hosts) {
  std::string message = fmt::format("model '{}' is on ", name);
  const Absence first = describe_absence(fleet, hosts.front());
  const auto why = [](const Absence& absence) {
    return absence.reason.empty() ? std::string() : fmt::format(" ({})", absence.reason);
  };
  if (hosts.size() == 1) {
    message += fmt::format("host {}, which is not connected since {}{}; {}", hosts.front(),
                           first.since, why(first), first.remedy);
    return {ErrorCode::Unavailable, std::move(message)};
  }
  message += "hosts that are not connected: ";
  for (std::size_t i = 0; i < std::min(hosts.size(), kHostsNamed); ++i) {
    const Absence absence = describe_absence(fleet, hosts[i]);
    message +=
        fmt::format("{}{} since {}{}", i == 0 ? "" : ", ", hosts[i], absence.since, why(absence));
  }
  if (hosts.size() > kHostsNamed) message += fmt::format(", {} more", hosts.size() - kHostsNamed);
  return {ErrorCode::Unavailable, message + "; " + first.remedy};
}

// Nobody hears of models that are not for its key, not even as the nearest names.
Error not_found(const fleet::Fleet& fleet, std::string_view name, fleet::KeyId key) {
  std::vector<std::string_view> names;
  bool has_models = false;
  for (const fleet::Model& model : fleet.models) {
    const bool is_somewhere = !model.hosts.empty() || !model.views.empty();
    has_models = has_models || is_somewhere;
    if (is_somewhere && may_use_model(fleet, key, model.name)) names.push_back(model.name);
  }
  std::string message = fmt::format("no host of this fleet knows a model '{}'", name);
  if (!names.empty()) {
    message += base::did_you_mean_inside(name, names);
  } else {
    message += has_models ? "; none has one for this key" : "; none has any model";
  }
  return {ErrorCode::NotFound, message + "; `llorch status` shows those there are"};
}

}  // namespace

bool may_use_model(const fleet::Fleet& fleet, fleet::KeyId key, std::string_view model) {
  const auto row = fleet.key_by_id.find(key);
  if (row == fleet.key_by_id.end()) return true;
  const std::vector<std::string>& globs = fleet.keys[row->second].facts.models;
  return globs.empty() || std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
           return fleet::matches_glob(glob, model);
         });
}

ModelSearch find_model_by_name(const fleet::Fleet& fleet, std::string_view name, fleet::KeyId key) {
  const fleet::Model* best = nullptr;
  const auto rank = [](const fleet::Model& one) {
    return std::pair(one.views.size(), one.hosts.size());
  };
  for (const fleet::Model& model : fleet.models) {
    if (!is_named(model, name) || (model.views.empty() && !has_near_host(fleet, model))) continue;
    if (best == nullptr || rank(*best) < rank(model)) best = &model;
  }
  if (best != nullptr) return {.found = FoundModel{best->hash, best->name}, .error = {}};
  if (std::optional<Error> coming = find_coming_host(fleet))
    return {.found = {}, .error = std::move(*coming), .retry_after_ms = kComingRetryMs};
  const std::vector<fleet::HostId> away = find_away_hosts(fleet, name);
  if (!away.empty() && may_use_model(fleet, key, name)) {
    return {.found = {}, .error = describe_away(fleet, name, away), .retry_after_ms = kAwayRetryMs};
  }
  return {.found = {}, .error = not_found(fleet, name, key)};
}

}  // namespace llorch::orchestrator
