// Completions for shells, made from the table of commands. Private to cli/.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::cli {

inline constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

// The script that a shell of that name reads: every command, and below each its own commands and
// flags. Hidden ones are left out.
std::string completion_script(const CLI::App& app, std::string_view shell);

}  // namespace llorch::cli
