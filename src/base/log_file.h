// Logs in files that stay small: a full one moves aside, the oldest goes.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace llorch::base {

inline constexpr int kOlderLogs = 3;  // FILE.1 (the newest of them), FILE.2, FILE.3
std::filesystem::path older_log(const std::filesystem::path& file, int age);

// Moves FILE to FILE.1 and so on; the oldest goes. Nothing happens when there is no FILE.
void rotate_log(const std::filesystem::path& file);

// Sends stderr to the file from now on; one of 8 MiB or more moves aside first. Empty: nothing to
// do.
Status redirect_log(const std::string& file);

// The same again once the file is full. Cheap: call it now and then.
void keep_log_small(const std::string& file);

}  // namespace llorch::base
