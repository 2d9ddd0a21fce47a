// Tests only.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "formats/gguf_writer.h"

namespace llorch::formats {

inline void add_texts(GgufWriter& writer, std::string_view key,
                      std::span<const std::string> values) {
  writer.add_array(key, {ElementType::String, values.size(), pack_texts(values)});
}

}  // namespace llorch::formats
