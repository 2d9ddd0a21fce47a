// The words of an enum whose values count up from 0, one for each, in the order of the values.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace llorch::base {

// `Last` is the enum's last value: a word too few or too many does not compile.
template <auto Last>
class EnumNames {
 public:
  using Enum = decltype(Last);
  static constexpr std::size_t kCount = static_cast<std::size_t>(Last) + 1;

  template <class... Words>
  explicit constexpr EnumNames(Words... words) : words_{words...} {
    static_assert(sizeof...(Words) == kCount, "one word for each value");
  }

  constexpr std::string_view operator[](Enum value) const {
    return words_[static_cast<std::size_t>(value)];
  }
  constexpr std::span<const std::string_view> words() const { return words_; }
  constexpr std::optional<Enum> find(std::string_view word) const {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (words_[i] == word) return static_cast<Enum>(i);
    }
    return std::nullopt;
  }

 private:
  std::array<std::string_view, kCount> words_;
};

}  // namespace llorch::base
