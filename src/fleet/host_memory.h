// HostMemory: which models hosts had when they were last seen, for the time when they cannot be
// asked. It is kept over restarts (docs/decisions/0035), so it is small and has bounds.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/events.h"
#include "fleet/records.h"

namespace llorch::fleet {

class HostMemory {
 public:
  static constexpr std::size_t kHostsMax = 1024;  // those that were seen last
  static constexpr std::size_t kModelsMax = 256;  // of one host, by name
  static constexpr UnixMs kRefreshMs = 600'000;   // how old a kept time may get while it is there

  struct Entry {
    UnixMs seen_ms = 0;
    std::vector<std::string> models;  // names, sorted, each once
  };
  // What is to be kept for a host; an empty text: it is forgotten.
  struct Change {
    HostId host;
    std::string text;
  };

  // It is there and has these. Changes where the models are others, or the kept time is too old.
  std::vector<Change> note_seen(const HostId& host, std::vector<std::string> models, UnixMs now_ms);
  // It was there until then.
  std::vector<Change> note_gone(const HostId& host, UnixMs seen_ms);
  // As it was kept. What cannot be read is passed over.
  void take_up(const HostId& host, std::string_view text);

  const std::map<HostId, Entry>& hosts() const { return hosts_; }
  // The hosts that had this model, by name.
  std::vector<HostId> hosts_of(std::string_view model) const;

 private:
  std::map<HostId, Entry> hosts_;
};

// "milliseconds since 1970", then a line for each model.
std::string text(const HostMemory::Entry& entry);
std::optional<HostMemory::Entry> host_memory_from_text(std::string_view text);

}  // namespace llorch::fleet
