#include "fleet/host_memory.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace llorch::fleet {
namespace {

void bound(std::vector<std::string>& models) {
  std::erase_if(models, [](const std::string& name) {
    return name.empty() || name.find('\n') != std::string::npos;
  });
  std::sort(models.begin(), models.end());
  models.erase(std::unique(models.begin(), models.end()), models.end());
  if (models.size() > HostMemory::kModelsMax) models.resize(HostMemory::kModelsMax);
}

}  // namespace

std::string text(const HostMemory::Entry& entry) {
  std::string text = std::to_string(entry.seen_ms);
  for (const std::string& model : entry.models) {
    text += '\n';
    text += model;
  }
  return text;
}

std::optional<HostMemory::Entry> host_memory_from_text(std::string_view text) {
  HostMemory::Entry entry;
  const std::size_t first = std::min(text.find('\n'), text.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + first, entry.seen_ms);
  if (error != std::errc() || end != text.data() + first || entry.seen_ms < 0) return std::nullopt;
  text.remove_prefix(first);
  while (!text.empty() && entry.models.size() < HostMemory::kModelsMax) {
    text.remove_prefix(1);
    const std::size_t length = std::min(text.find('\n'), text.size());
    entry.models.emplace_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  bound(entry.models);
  return entry;
}

std::vector<HostMemory::Change> HostMemory::note_seen(const HostId& host,
                                                      std::vector<std::string> models,
                                                      UnixMs now_ms) {
  bound(models);
  const auto known = hosts_.find(host);
  if (known != hosts_.end() && known->second.models == models &&
      now_ms - known->second.seen_ms < kRefreshMs)
    return {};
  const Entry& entry = hosts_[host] = Entry{now_ms, std::move(models)};
  std::vector<Change> changes = {{host, text(entry)}};
  if (hosts_.size() > kHostsMax) {
    const auto oldest = std::min_element(hosts_.begin(), hosts_.end(), [](auto& a, auto& b) {
      return a.second.seen_ms < b.second.seen_ms;
    });
    changes.push_back({oldest->first, ""});
    hosts_.erase(oldest);
  }
  return changes;
}

std::vector<HostMemory::Change> HostMemory::note_gone(const HostId& host, UnixMs seen_ms) {
  const auto known = hosts_.find(host);
  if (known == hosts_.end() || known->second.seen_ms >= seen_ms) return {};
  known->second.seen_ms = seen_ms;
  return {{host, text(known->second)}};
}

void HostMemory::take_up(const HostId& host, std::string_view text) {
  std::optional<Entry> entry = host_memory_from_text(text);
  if (entry && hosts_.size() < kHostsMax) hosts_.insert_or_assign(host, std::move(*entry));
}

std::vector<HostId> HostMemory::hosts_of(std::string_view model) const {
  std::vector<HostId> hosts;
  for (const auto& [host, entry] : hosts_) {
    if (std::binary_search(entry.models.begin(), entry.models.end(), model)) hosts.push_back(host);
  }
  return hosts;
}

}  // namespace llorch::fleet
