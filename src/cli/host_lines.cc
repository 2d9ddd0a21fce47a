#include "cli/host_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/terminal.h"

namespace llorch::cli {
namespace {

constexpr std::size_t kLineBytesMax = std::size_t{64} << 10;

std::string shown(const std::string& name, std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return name + base::printable(line) + "\n";
}

}  // namespace

HostLines::HostLines(const std::vector<std::string>& hosts, bool color, Print print)
    : print_(std::move(print)) {
  std::size_t width = 0;
  for (const std::string& host : hosts) width = std::max(width, host.size());
  const base::MutexLock lock(mutex_);
  for (const std::string& host : hosts)
    hosts_.push_back(
        {base::paint(fmt::format("{:<{}}", host, width), base::Color::Dim, color) + "  ", {}});
}

void HostLines::take(std::size_t host, std::string_view bytes) {
  const base::MutexLock lock(mutex_);
  Host& from = hosts_[host];
  std::string text;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t room = kLineBytesMax - from.rest.size();
    const std::size_t size = std::min(std::min(end, bytes.size()), room);
    from.rest += bytes.substr(0, size);
    const bool is_whole = size == end;
    bytes.remove_prefix(is_whole ? size + 1 : size);
    if (!is_whole && from.rest.size() < kLineBytesMax) continue;
    text += shown(from.name, std::exchange(from.rest, {}));
  }
  if (!text.empty()) print_(text);
}

void HostLines::finish(std::size_t host) {
  const base::MutexLock lock(mutex_);
  Host& from = hosts_[host];
  if (!from.rest.empty()) print_(shown(from.name, std::exchange(from.rest, {})));
}

}  // namespace llorch::cli
