// Many downloads for people. Private to cli/.
#pragma once

#include <chrono>
#include <string>

#include "base/home.h"
#include "base/json.h"

namespace llorch::cli {

// ID MODEL STATE DONE SIZE SPEED AGE of what GET /v2/downloads lists; only what is under way, or
// all. Empty when there is none of them.
std::string downloads_table(const json::Array& downloads, bool all,
                            std::chrono::system_clock::time_point now, bool color);

// The downloads of other processes of this home, in the shape of that list.
json::Array read_downloads_under_way(const base::Home& home);

}  // namespace llorch::cli
