// What the commands print, and the codes they end with. Private to cli/.
#pragma once

#include <string_view>

namespace llorch::cli {

inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;
inline constexpr int kInterrupted = 130;

// At once, unbuffered for the reader. False when it cannot be written.
bool write_out(std::string_view text);
void write_err(std::string_view text);

// "llorch-pool: message" on stderr, after the program's own name, without anything that could
// command a terminal.
void complain(std::string_view message);
// The same for a message that has lines behind its first, of a log for example.
void complain_lines(std::string_view message);

}  // namespace llorch::cli
