// An orchestrator from its command line to its exit code: `orchestratord`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"

namespace llorch::orchestrator {

// Validates the flags, opens the store, listens (/health answers 503 "starting"), takes up what was
// open, says so (a line on stdout, the address file), serves until SIGTERM, SIGINT or
// POST /v2/shutdown. Jobs that run then are cut and go on at the next start. 0 ok, 1 failure (one
// line on stderr), 2 usage, 130 a second signal. Call it before the program makes threads.
int run_orchestrator(std::string_view program, const std::vector<std::string>& arguments,
                     const base::Environment& environment);

// Where the orchestrator of this home listens, as it wrote when it did.
std::filesystem::path orchestrator_address_file(const base::Home& home);

}  // namespace llorch::orchestrator
