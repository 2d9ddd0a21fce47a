// Where a daemon of a home listens: a file that it writes once it is ready and takes away at its
// end, so that commands find it and trust no stranger on the usual port.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/process_table.h"
#include "base/result.h"

namespace llorch::api {

struct DaemonAddress {
  std::string url;
  std::string socket;  // a unix socket that leads to the same; empty: none
  base::ProcessIdentity process;
};

// Says in `file` that this process listens at `url`, and on `socket` where there is one.
Status write_daemon_address(const std::filesystem::path& file, const std::string& url,
                            const std::string& socket = {});

// Nothing when there is no such file, it is damaged, or its process does not run.
std::optional<DaemonAddress> read_daemon_address(const std::filesystem::path& file);

}  // namespace llorch::api
