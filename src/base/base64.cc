#include "base/base64.h"

#include <algorithm>
#include <cstddef>

namespace llorch::base {
namespace {

constexpr std::string_view kCommon =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

char letter(std::uint32_t digit, Base64 alphabet) {
  if (digit < kCommon.size()) return kCommon[digit];
  return (alphabet == Base64::Url ? "-_" : "+/")[digit - kCommon.size()];
}

std::optional<std::uint32_t> digit_of(char c, Base64 alphabet) {
  if (c >= 'A' && c <= 'Z') return static_cast<std::uint32_t>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<std::uint32_t>(c - 'a' + 26);
  if (c >= '0' && c <= '9') return static_cast<std::uint32_t>(c - '0' + 52);
  if (c == (alphabet == Base64::Url ? '-' : '+')) return 62;
  if (c == (alphabet == Base64::Url ? '_' : '/')) return 63;
  return std::nullopt;
}

}  // namespace

std::string to_base64(std::string_view bytes, Base64 alphabet) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k <= count; ++k) out += letter(word >> (18 - 6 * k) & 63U, alphabet);
    if (alphabet == Base64::Standard) out.append(3 - count, '=');
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text, Base64 alphabet) {
  if (alphabet == Base64::Standard) {
    if (text.size() % 4 != 0) return std::nullopt;
    for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() * 3 / 4);
  std::uint32_t word = 0;
  unsigned num_bits = 0;
  for (const char c : text) {
    const std::optional<std::uint32_t> digit = digit_of(c, alphabet);
    if (!digit) return std::nullopt;
    word = word << 6 | *digit;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    out += static_cast<char>(word >> num_bits & 0xffU);
  }
  // What is left over of the last letter says nothing and must be zero: one text for each content.
  if ((word & ((1U << num_bits) - 1)) != 0) return std::nullopt;
  return out;
}

}  // namespace llorch::base
