// Where a daemon of a home listens: a file that it writes once it is ready and takes away at its
// end, so that commands find it and trust no stranger on the usual port.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/process_table.h"
#include "base/result.h"

namespace llorch::api {

struct DaemonAddress {
  std::string url;
  std::string socket;     // a unix socket that leads to the same; empty: none
  std::string local_url;  // how programs of this machine ask it: the URL, or the socket's
  std::string host;       // that it listens on, as it was told; empty: not said
  base::ProcessIdentity process;
};

// Says in `file` that this process listens at `url`, and on `socket` where there is one;
// `prefers_socket`: that programs of this machine use the socket, whatever names are in the
// server's certificate.
Status write_daemon_address(const std::filesystem::path& file, const std::string& url,
                            const std::string& socket = {}, bool prefers_socket = false,
                            const std::string& host = {});

// Where other machines reach a daemon that listens on every address of this one; empty: it does
// not.
std::vector<std::string> urls_for_others(const DaemonAddress& address);

// Nothing when there is no such file, it is damaged, or its process does not run.
std::optional<DaemonAddress> read_daemon_address(const std::filesystem::path& file);

}  // namespace llorch::api
