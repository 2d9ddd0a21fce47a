// Flags that commands which ask a model share. Private to cli/.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "contract/sampling_config.h"

namespace llorch::cli {

// A number between the two; CLI11's own range lets "nan" through.
CLI::Validator number_between(double min, double max);

// What suits stories and chat alike; the worker's own default is the plain distribution.
void add_sampling_flags(CLI::App& command, contract::SamplingConfig& sampling);
void add_system_flag(CLI::App& command, std::string& system);

// The words joined, or standard input where there are none ("-" too). InvalidArgument: empty, not
// UTF-8, too long, or a terminal where a pipe was expected; `example` says how it is done.
Result<std::string> find_prompt(const std::vector<std::string>& words, std::string_view example);

}  // namespace llorch::cli
