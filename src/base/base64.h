// Bytes as text of 64 letters (RFC 4648).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace llorch::base {

// Standard ends with "+/" and pads with "="; Url ends with "-_" and has no padding, so that it may
// stand in an address, in a file name and on any shell's command line.
enum class Base64 : std::uint8_t { Standard, Url };

std::string to_base64(std::string_view bytes, Base64 alphabet = Base64::Standard);

// Exactly what to_base64 writes; nothing for any other text.
std::optional<std::string> from_base64(std::string_view text, Base64 alphabet = Base64::Standard);

}  // namespace llorch::base
