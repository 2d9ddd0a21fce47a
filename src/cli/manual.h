// The manual, made from the table of commands: a page for man(1), and the table itself for
// programs. Private to cli/.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>

#include "base/json.h"

namespace llorch::cli {

// The page of section 1: every command with its flags and examples. Hidden ones are left out.
std::string manual_page(const CLI::App& app);

// {"name","about","options":[{"names","about","value"}],"commands":[…]}; "value": whether a flag
// is followed by one. Hidden ones are left out.
json::Object command_table(const CLI::App& app);

// The hidden command `manual [--json]` of a program; `choose` is called when it is named.
void add_manual_command(CLI::App& app, const std::function<void(std::function<int()> run)>& choose);

}  // namespace llorch::cli
