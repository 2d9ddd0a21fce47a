// Values of the fleet as the columns of the database hold them. Private to the module.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fleet/ids.h"

namespace llorch::job_store {

// 16 bytes, the high ones first.
inline std::string id_bytes(const fleet::JobId& id) {
  std::string bytes(16, '\0');
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(id.high >> (56 - 8 * i) & 0xff);
    bytes[8 + i] = static_cast<char>(id.low >> (56 - 8 * i) & 0xff);
  }
  return bytes;
}

inline fleet::JobId id_of(std::string_view bytes) {
  fleet::JobId id;
  for (std::size_t i = 0; i < 8 && bytes.size() == 16; ++i) {
    id.high = id.high << 8 | static_cast<unsigned char>(bytes[i]);
    id.low = id.low << 8 | static_cast<unsigned char>(bytes[8 + i]);
  }
  return id;
}

// SQLite's integers have a sign.
inline std::int64_t to_column(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}

}  // namespace llorch::job_store
