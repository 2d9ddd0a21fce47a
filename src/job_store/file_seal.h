// The seal of a copy: one line behind its last page with the SHA-256 of everything before it.
// SQLite reads as many pages as the file's head counts, so a sealed file is still a database.
// Private to the module.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace llorch::job_store {

// Appends the line. The file has none yet.
Status seal_file(const std::filesystem::path& file);

// True: the contents are those that were sealed. False: there is no seal. Corrupt: the contents are
// others, or the seal itself is damaged.
Result<bool> check_seal(const std::filesystem::path& file);

}  // namespace llorch::job_store
