// What llorch-pool shows about workers and hosts, for people. Private to cli/.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "contract/model_entry.h"
#include "contract/pool_info.h"

namespace llorch::cli {

// "42 s", "3 m", "2 h 5 m", "9 d": since a moment that base::to_rfc3339 wrote; empty when it is
// none.
std::string age_of(std::string_view since, std::chrono::system_clock::time_point now);

// ID STATE MODEL BACKEND ADDRESS SLOTS TOK/S MEMORY AGE, or a line that there are none.
std::string workers_table(const std::vector<contract::PoolWorker>& workers,
                          std::chrono::system_clock::time_point now, bool color);

// Host, processor, memory, disk, and each GPU.
std::string host_text(const contract::HostInfo& host, bool color);

// ID ARCHITECTURE SIZE CONTEXT of those that are here, and how many are only known by name.
std::string models_table(const std::vector<contract::ModelEntry>& models, bool color);

// The text of that field of an answer, for people; empty where there is none.
std::string text_in(const json::Object& object, std::string_view field);

}  // namespace llorch::cli
