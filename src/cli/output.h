// What the commands print, and the codes they end with. Private to cli/.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace llorch::cli {

inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;
inline constexpr int kInterrupted = 130;

// At once, unbuffered for the reader. False when it cannot be written.
bool write_out(std::string_view text);
void write_err(std::string_view text);
// The same as a command's result: the code to leave with. When it cannot be written, the command
// has failed and says so.
int print(std::string_view text);
int print_json(const json::Value& value);  // in a line of its own

// Columns of the terminal behind standard output: wider tables are folded. Without one, as many as
// a table wants: what other programs read has one form.
std::size_t fold_width();

// "llorch-pool: message" on stderr, after the program's own name, without anything that could
// command a terminal.
void complain(std::string_view message);
// The same for a message that has lines behind its first, of a log for example.
void complain_lines(std::string_view message);
// The same of an error; kFailure, to leave with.
int fail(const Error& error);

}  // namespace llorch::cli
