// Where this program lies: its companions are found beside it.
#pragma once

#include <filesystem>

namespace llorch::base {

// The folder of the running program, links followed; empty where the system does not say.
std::filesystem::path own_folder();

}  // namespace llorch::base
