// What of a file that is still being fetched is right: written beside it, read by whoever goes on.
// Private to fetch/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::fetch {

struct PartState {
  std::string identity;  // of the content: another one, another file
  std::int64_t size = 0;
  std::int64_t chunk_bytes = 0;
  std::vector<std::string> chunks;  // sha256 of each that is whole and on the disk; empty: not yet
  std::map<std::size_t, std::int64_t> partial;  // how many bytes of others are, from their front

  friend bool operator==(const PartState&, const PartState&) = default;
};

Result<PartState> parse_part_state(std::string_view text);
// NotFound or Corrupt: begin from nothing.
Result<PartState> load_part_state(const std::filesystem::path& file);
// A kill at any moment leaves the old state or the new one. One process at a time.
Status save_part_state(const std::filesystem::path& file, const PartState& state);
void remove_part_state(const std::filesystem::path& file);

}  // namespace llorch::fetch
