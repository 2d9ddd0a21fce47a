// Parsing a command line with CLI11, and naming what was probably meant where it fails. Private to
// cli/.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::cli {

// Nothing when the words (without the program's name) were understood; else the exit code, after
// help or version on stdout, or on stderr what is wrong. An unknown command or option is named
// with the nearest one.
std::optional<int> parse_words(CLI::App& app, std::vector<std::string> words);

// Of an option whose value is the address of a daemon: an http://, https:// or unix: URL.
CLI::Validator url_rule();

// One word of a command that people may copy: as it is where every shell takes it so, else in
// single quotes.
std::string shell_word(std::string_view text);

// "a,b" as its words, in order; empty ones are left out.
std::vector<std::string> split_words(std::string_view text);

}  // namespace llorch::cli
