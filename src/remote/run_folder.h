// Where the sockets of connections to other hosts lie.
#pragma once

#include <filesystem>

#include "base/home.h"
#include "base/result.h"

namespace llorch::remote {

// The same folder for everybody who uses this home, for this user alone, short enough for sockets
// (SshHost::make): below the home where its path allows, else below $XDG_RUNTIME_DIR or /tmp. Made
// where it is not there. Forbidden: somebody else made it.
Result<std::filesystem::path> make_run_folder(const base::Home& home,
                                              const base::Environment& environment);

}  // namespace llorch::remote
