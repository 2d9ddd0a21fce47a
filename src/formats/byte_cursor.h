// Reads little-endian numbers and runs of bytes from front to back and never beyond the end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

namespace llorch::formats {

class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }

  // Nothing, and no movement, when fewer bytes remain.
  template <class T>
  std::optional<T> read() {
    static_assert(std::is_arithmetic_v<T> && std::endian::native == std::endian::little);
    const auto taken = take(sizeof(T));
    if (!taken) return std::nullopt;
    T value;
    std::memcpy(&value, taken->data(), sizeof(T));
    return value;
  }

  std::optional<std::span<const std::byte>> take(std::size_t count) {
    if (count > remaining()) return std::nullopt;
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
};

}  // namespace llorch::formats
