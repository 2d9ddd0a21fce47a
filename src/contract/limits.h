// Every bound of the wire contract, in one place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace llorch::contract {

inline constexpr std::size_t kJobIdBytesMax = 256;
inline constexpr std::size_t kPromptScalarsMax = 131072;  // Unicode scalar values
inline constexpr std::size_t kStopStringsMax = 4;
inline constexpr std::size_t kStopBytesMax = 100;

inline constexpr double kTemperatureMax = 2;
inline constexpr double kRepetitionPenaltyMax = 2;
// The context length, known to the worker alone, is the real bound of max_tokens.
inline constexpr std::int32_t kMaxTokensMax = std::numeric_limits<std::int32_t>::max();

// The longest prompt, each scalar value written as an escaped surrogate pair (12 bytes), as many
// ids of what was said elsewhere (7 bytes), and room for the rest.
inline constexpr std::size_t kRequestBodyBytesMax = std::size_t{4} << 20;
static_assert(kRequestBodyBytesMax >
              kPromptScalarsMax * (12 + 7) + kStopStringsMax * kStopBytesMax * 6 + 16384);

// How long a worker that is asked to stop may be given to finish what runs.
inline constexpr std::int64_t kDrainSecondsMax = 3600;

// A request can hold far more unknown fields than anybody wants to read about.
inline constexpr std::size_t kFieldErrorsMax = 64;

// A token below this length is refused where one is needed (any address but loopback).
inline constexpr std::size_t kApiTokenBytesMin = 16;

}  // namespace llorch::contract
