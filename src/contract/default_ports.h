// The ports where our daemons listen unless told otherwise: the only place that has the numbers.
#pragma once

#include <cstdint>

namespace llorch::contract {

inline constexpr std::uint16_t kOrchestratorPort = 8080;
inline constexpr std::uint16_t kPoolPort = 9200;

}  // namespace llorch::contract
