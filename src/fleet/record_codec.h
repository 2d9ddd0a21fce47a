// A record as bytes and back: the same for every store.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "fleet/records.h"

namespace llorch::fleet {

// Which record it is: stored beside the bytes.
inline std::uint8_t record_kind(const Record& record) {
  return static_cast<std::uint8_t>(record.index());
}

// Little-endian numbers, texts with their length in front, in the order of the fields. Fields are
// only ever added at the end: a shorter record leaves the rest at their defaults, a longer one (of
// a newer program, after a roll-back) is read as far as we know it.
std::string encode_record(const Record& record);
// Corrupt, and where, for an unknown kind, a value out of its range or bytes that end inside a
// field.
Result<Record> decode_record(std::uint8_t kind, std::string_view bytes);

// A position, and the ids of an answer group, likewise.
std::string encode_position(const Position& position);
Result<Position> decode_position(std::string_view bytes);
std::string encode_ids(const std::vector<ChoiceIds>& ids);
Result<std::vector<ChoiceIds>> decode_ids(std::string_view bytes);

}  // namespace llorch::fleet
