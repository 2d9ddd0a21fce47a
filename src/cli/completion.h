// Completions for shells, made from the table of commands. Private to cli/.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::cli {

inline constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

// The script that a shell of that name reads: every command, and below each its own commands and
// flags. Hidden ones are left out. It belongs to the program that the app is named after.
std::string completion_script(const CLI::App& app, std::string_view shell);

// The command `completion SHELL` of a program; `choose` is called when it is named, and
// `json_output` is read when it runs.
CLI::App* add_completion_command(CLI::App& app, const bool& json_output,
                                 const std::function<void(std::function<int()> run)>& choose);

}  // namespace llorch::cli
