// A small direct-mapped memory of words already merged in this call: natural text repeats itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/types.h"

namespace llorch::tokenizer {

class WordCache {
 public:
  WordCache() : entries_(kEntries) {}

  // The ids of the word, or an empty span. No word has none.
  std::span<const TokenId> find(std::string_view word, std::uint64_t hash) const {
    const Entry& entry = entries_[hash >> kShift & (kEntries - 1)];
    if (entry.length != word.size() ||
        std::memcmp(entry.word.data(), word.data(), word.size()) != 0) {
      return {};
    }
    return {entry.ids.data(), entry.count};
  }

  void store(std::string_view word, std::uint64_t hash, std::span<const TokenId> ids) {
    if (word.size() > kMaxBytes || ids.size() > kMaxIds || ids.empty()) return;
    Entry& entry = entries_[hash >> kShift & (kEntries - 1)];
    entry.length = static_cast<std::uint8_t>(word.size());
    entry.count = static_cast<std::uint8_t>(ids.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

  static constexpr std::size_t kMaxBytes = 26;

 private:
  static constexpr std::size_t kMaxIds = 9;
  static constexpr std::size_t kEntries = 8192;  // of 64 bytes: half a megabyte
  static constexpr unsigned kShift = 13;  // other bits than the vocabulary's table uses first

  struct Entry {
    std::uint8_t length = 0;
    std::uint8_t count = 0;
    std::array<char, kMaxBytes> word{};
    std::array<TokenId, kMaxIds> ids{};
  };
  static_assert(sizeof(Entry) == 64);

  std::vector<Entry> entries_;
};

}  // namespace llorch::tokenizer
