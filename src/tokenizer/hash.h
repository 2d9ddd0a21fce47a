// The hash of every table that a tokenizer file fills. Files are hostile: with a function that they
// could foresee they would put everything into one place of a table, and each look-up would walk
// through all of it. This one has a key that is drawn anew in each process; no result depends on
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace llorch::tokenizer {

struct HashKey {
  std::uint64_t first;
  std::uint64_t second;  // odd
};
HashKey draw_hash_key();
inline const HashKey kHashKey = draw_hash_key();

// Both halves of the product count, so that no bit of `a` passes through unmixed.
inline std::uint64_t fold_product(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_number(std::uint64_t number) {
  return fold_product(number ^ kHashKey.first, kHashKey.second);
}

inline std::uint64_t hash_bytes(std::string_view text) {
  std::uint64_t hash = text.size();
  const char* data = text.data();
  std::size_t left = text.size();
  std::uint64_t word = 0;
  for (; left > 8; data += 8, left -= 8) {
    std::memcpy(&word, data, 8);
    hash = hash_number(hash ^ word);
  }
  word = 0;
  std::memcpy(&word, data, left);
  return hash_number(hash ^ word);
}

}  // namespace llorch::tokenizer
