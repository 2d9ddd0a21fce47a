// A small vocabulary with the oddities of real ones, and random texts written with it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/token_mask.h"

namespace llorch::grammar::test {

// Every byte, an end id (256) with a text, an empty id, and pieces that cut JSON and characters
// where real tokenizers do.
inline std::vector<std::string> small_vocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.emplace_back("<end>");
  bytes.emplace_back();
  for (const std::string_view piece :
       {"{\"",      "\":",     "\": ",      "\": \"",   "\":\"",  "\",",
        "\", \"",   "\",\"",   "\"}",       "\"}}",     "}",      "}}",
        "}]",       "}}}",     "},",        "},{",      "[]",     "[{",
        "[\"",      "[[",      "]]",        "]}",       "],",     "],\"",
        "{}",       "{ ",      "{\n",       "{\n  ",    ",\n",    ",\n  ",
        "\n    ",   "\n\n",    "  ",        "    ",     " \"",    " {",
        " [",       " -",      " 1",        "null",     "true",   "false",
        "nul",      " true",   " null",     "tr",       "ue",     "12",
        "100",      "123456",  "0.",        ".5",       "e1",     "E+",
        "-0",       "00",      "00000",     "the",      " the",   "name",
        "ame",      "type",    "value",     "next",     "kind",   "circle",
        "square",   "ab",      "abc",       "abcdef",   "cdef",   "xyz",
        "a\"",      "a\":",    "\\n",       "\\\"",     "\\u",    "\\ud83d",
        "\\ude00",  "\\u00e9", "\\uD83D\\", "d83d",     "\\\\",   "é",
        "ß",        "日本",    "日本語",    "\xE6\x97", "\xA5本", "\xF0\x9F",
        "\x98\x80", "😀",       "\xC3",      "na\xC3",   "\xAFve", "\xED\xA0\x80",
        "\xC0\x80", "\x80",    "\xFF",      "a\nb",     "\t",     "\r\n",
        "\x7F",     "//",      "/*",        "  \"",     "\"\"",   "\"\",",
        ": ",       ":",       "::",        ", ",       "}, {\"", "\"],\"",
        "steps",    "output",  "percent",   "celsius",  "-1",     "-273.1",
        "location", "unit",    "days",      "tags",     "pair",   "tail",
        "item",     "list"}) {
    bytes.emplace_back(piece);
  }
  return bytes;
}
inline constexpr TokenId kEndId = 256;

inline std::shared_ptr<const TokenTable> small_table() {
  return TokenTable::create(small_vocabulary(), std::array{kEndId}).take();
}

inline std::vector<TokenId> allowed_ids(TokenMasker& masker, std::size_t size) {
  std::vector<float> logits(size, 0.0F);
  masker.mask(logits);
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < size; ++i) {
    if (!std::isinf(logits[i])) ids.push_back(static_cast<TokenId>(i));
  }
  return ids;
}

// A random text, one allowed id after the other; after `patience` ids it takes what closes. Nothing
// when the mask left no id or the text did not end: a defect.
inline std::optional<std::string> write_text(TokenMasker masker,
                                             const std::vector<std::string>& bytes,
                                             std::mt19937& random, std::size_t patience) {
  std::string text;
  for (std::size_t step = 0; step < patience + 3000; ++step) {
    const std::vector<TokenId> ids = allowed_ids(masker, bytes.size());
    if (ids.empty()) return std::nullopt;
    TokenId id = ids[random() % ids.size()];
    const auto may_take = [&](char byte) {
      return std::binary_search(ids.begin(), ids.end(), static_cast<TokenId>(byte));
    };
    if (step >= patience) {
      for (const char closer : {'{', 'n', '0', '"', ']', '}'}) {
        if (may_take(closer)) id = static_cast<TokenId>(closer);
      }
      if (may_take('"') && may_take('#')) id = static_cast<TokenId>('"');  // within a string
    }
    if (std::binary_search(ids.begin(), ids.end(), kEndId) &&
        (step >= patience || random() % 4 == 0))
      id = kEndId;
    if (!masker.accept(id)) return std::nullopt;
    if (id == kEndId) return text;
    text += bytes[static_cast<std::size_t>(id)];
  }
  return std::nullopt;
}

}  // namespace llorch::grammar::test
