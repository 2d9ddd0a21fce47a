// One line of the audit log: what was done, by whom, and the hash that ties it to the line before.
// Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::audit {

// What is written down. Never a prompt, an answer or a key: whoever fills it in sees to that.
struct Act {
  std::string actor;          // "local", "daemon", "key:<id> laptop", "token:1a2b3c"
  std::string action;         // "key.add"
  std::string object;         // what it was done to
  std::string result = "ok";  // or the code of the error
  std::string detail;         // a few words; may be empty
};

// Where the chain ends: the number of its last line, and that line's hash.
struct Head {
  std::uint64_t seq = 0;
  std::string hash = std::string(64, '0');

  friend bool operator==(const Head&, const Head&) = default;
};

struct Line {
  std::uint64_t seq = 0;
  std::string time;  // RFC 3339
  Act act;
  std::string previous;  // hash
  std::string hash;
};

// The line that follows `head`, with its newline; `head` becomes its own. What is longer than 256
// bytes in a field is cut.
std::string write_line(const Act& act, std::chrono::system_clock::time_point now, Head& head);

// Corrupt: it is no line of ours, or its hash is not that of its text.
Result<Line> read_line(std::string_view text);

}  // namespace llorch::audit
