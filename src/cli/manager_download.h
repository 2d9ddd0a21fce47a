// Downloads that a pool manager does: following one, and showing many. Private to cli/.
#pragma once

#include <chrono>
#include <stop_token>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "catalog/download.h"
#include "cli/pool_client.h"

namespace llorch::cli {

// Tells everything about a download of the manager until it has ended: then what its last event
// says, a result or an error. Cancelled as soon as `stop` says so, which leaves the download alone;
// Unavailable when the manager goes away.
Result<json::Object> follow_download(PoolClient& client, const std::string& id,
                                     const catalog::OnDownloadEvent& on_event,
                                     std::stop_token stop);

// ID MODEL STATE DONE SIZE SPEED AGE of what GET /v2/downloads lists; only what is under way, or
// all. Empty when there is none of them.
std::string downloads_table(const json::Array& downloads, bool all,
                            std::chrono::system_clock::time_point now, bool color);

// The downloads of other processes of this home, in the shape of that list.
json::Array read_downloads_under_way(const base::Home& home);

}  // namespace llorch::cli
