#include "fleet/ids.h"

#include <charconv>

namespace llorch::fleet {
namespace {

constexpr std::size_t kWordDigits = 16;
constexpr std::string_view kDigits = "0123456789abcdef";

void append_hex(std::string& out, std::uint64_t word) {
  for (int shift = 60; shift >= 0; shift -= 4) out.push_back(kDigits[(word >> shift) & 15U]);
}

// Exactly 16 lower-case digits: an id has one spelling.
std::optional<std::uint64_t> parse_hex(std::string_view text) {
  if (text.size() != kWordDigits) return std::nullopt;
  std::uint64_t word = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    word = (word << 4U) | digit;
  }
  return word;
}

template <class Tag>
std::string hex_text(const Id128<Tag>& id) {
  std::string out;
  out.reserve(2 * kWordDigits);
  append_hex(out, id.high);
  append_hex(out, id.low);
  return out;
}

template <class Tag>
std::optional<Id128<Tag>> parse_id(std::string_view text) {
  if (text.size() != 2 * kWordDigits) return std::nullopt;
  const auto high = parse_hex(text.substr(0, kWordDigits));
  const auto low = parse_hex(text.substr(kWordDigits));
  if (!high || !low) return std::nullopt;
  return Id128<Tag>{*high, *low};
}

// A decimal number without sign, spaces or leading zeros.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
  return value;
}

}  // namespace

std::string text(const JobId& id) {
  return hex_text(id);
}

std::optional<JobId> job_id_from_text(std::string_view text) {
  return parse_id<JobTag>(text);
}

std::string text(const ModelHash& hash) {
  return hex_text(hash);
}

std::optional<ModelHash> model_hash_from_text(std::string_view text) {
  return parse_id<ModelTag>(text);
}

std::string text(KeyId key) {
  std::string out;
  append_hex(out, key.value);
  return out;
}

std::optional<KeyId> key_id_from_text(std::string_view text) {
  const auto value = parse_hex(text);
  return value ? std::optional(KeyId{*value}) : std::nullopt;
}

std::string text(const AttemptId& attempt) {
  return text(attempt.job) + "." + std::to_string(attempt.boot) + "." +
         std::to_string(attempt.number);
}

std::uint64_t Position::total() const {
  std::uint64_t sum = 0;
  for (const std::uint32_t count : told) sum += count;
  return sum;
}

bool Position::covers(const Position& other) const {
  for (std::size_t i = 0; i < other.told.size(); ++i) {
    if ((i < told.size() ? told[i] : 0U) < other.told[i]) return false;
  }
  return true;
}

std::string text(const Position& position) {
  std::string out;
  for (const std::uint32_t count : position.told) {
    if (!out.empty()) out.push_back('.');
    out += std::to_string(count);
  }
  return out.empty() ? "0" : out;
}

std::optional<Position> position_from_text(std::string_view text) {
  Position position;
  while (position.told.size() < kChoicesMax) {
    const std::size_t dot = text.find('.');
    const auto count = parse_number<std::uint32_t>(text.substr(0, dot));
    if (!count) return std::nullopt;
    position.told.push_back(*count);
    if (dot == std::string_view::npos) return position;
    text.remove_prefix(dot + 1);
  }
  return std::nullopt;
}

}  // namespace llorch::fleet
