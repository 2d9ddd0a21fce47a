// This machine as a host of the fleet. Private to cli/.
#pragma once

#include <stop_token>

#include "base/result.h"
#include "cli/fleet_client.h"

namespace llorch::cli {

// Takes this machine's pool into the fleet again where `llorch down local` took it out, and waits
// until it has work; ok where it is in it, or was never to be.
Status take_local_back(const FleetClient& client, const std::stop_token& stop);

}  // namespace llorch::cli
