// Tests only.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_writer.h"

namespace llorch::formats {

inline void add_texts(GgufWriter& writer, std::string_view key,
                      std::span<const std::string> values) {
  std::vector<std::byte> bytes;
  for (const std::string& value : values) {
    const std::uint64_t size = value.size();
    const auto head = std::as_bytes(std::span(&size, 1));
    const auto text = std::as_bytes(std::span(value));
    bytes.insert(bytes.end(), head.begin(), head.end());
    bytes.insert(bytes.end(), text.begin(), text.end());
  }
  writer.add_array(key, {ElementType::String, values.size(), bytes});
}

}  // namespace llorch::formats
