// What several hosts say at once, for people: whole lines as they come, each with its host in
// front. Private to cli/.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"

namespace llorch::cli {

// Any thread.
class HostLines {
 public:
  // `print`: one call for each piece of whole lines, and never two at once.
  using Print = std::function<void(std::string_view text)>;
  HostLines(const std::vector<std::string>& hosts, bool color, Print print);

  // What that host has said, in pieces as they come. A line of more than 64 KiB is several.
  void take(std::size_t host, std::string_view bytes);
  // It says no more: a last line without its newline is one too.
  void finish(std::size_t host);

 private:
  struct Host {
    std::string name;  // as it stands in front of lines
    std::string rest;  // of a line that is not whole yet
  };
  base::Mutex mutex_;
  std::vector<Host> hosts_ LLORCH_GUARDED_BY(mutex_);
  const Print print_;
};

}  // namespace llorch::cli
