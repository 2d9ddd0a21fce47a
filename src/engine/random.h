// Random numbers without a state: a function of a key and a counter (Philox 4x32 with ten rounds,
// Salmon et al. 2011). Whoever draws at position p gets the same number however he came there.
#pragma once

#include <array>
#include <cstdint>

namespace llorch::engine {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t even = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t odd = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(odd >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(odd),
               static_cast<std::uint32_t>(even >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(even)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

inline constexpr int kDrawBits = 53;

// Uniform in [0, 2^53), for the token at this position of its sequence.
constexpr std::uint64_t draw_bits(std::uint64_t seed, std::int32_t position) {
  const PhiloxCounter bits =
      philox({static_cast<std::uint32_t>(position), 0, 0, 0},
             {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return (std::uint64_t{bits[1]} << 32 | bits[0]) >> (64 - kDrawBits);
}

}  // namespace llorch::engine
