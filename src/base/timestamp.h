// Moments as the wire and the files write them.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace llorch::base {

// "2026-01-02T03:04:05.678Z"
std::string to_rfc3339(std::chrono::system_clock::time_point time);

// What to_rfc3339 wrote, also without the fraction; nothing for any other text.
std::optional<std::chrono::system_clock::time_point> parse_rfc3339(std::string_view text);

}  // namespace llorch::base
