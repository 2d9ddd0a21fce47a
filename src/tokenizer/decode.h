// Ids → text, one id at a time: what each piece reads as, and bytes put together to valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/types.h"
#include "tokenizer/vocab.h"

namespace llorch::tokenizer {

// How the pieces of a vocabulary are read back.
struct DecodeRules {
  enum class Style : std::uint8_t {
    ByteLevel,  // pieces are bytes
    Fused,      // pieces are text with replacements; <0xNN> pieces are bytes
    Metaspace,  // "▁" is a space, except in the first piece
    WordPiece,  // a space before every piece that does not continue a word
    Joined,     // a space between all pieces
  };
  Style style = Style::ByteLevel;
  std::vector<std::pair<std::string, std::string>> replacements;  // in order
  bool has_byte_pieces = false;
  std::size_t strip_left = 0;  // spaces taken off the start of the whole text
  std::string mark;            // Metaspace's "▁", WordPiece's "##"
  bool drops_first_mark = false;
  bool cleans_up = false;  // WordPiece: no space before punctuation and contractions
};

// Bytes in, valid UTF-8 out. What cannot become a character is U+FFFD: one for each maximal part of
// a character, or one for each byte.
class Utf8Assembler {
 public:
  explicit Utf8Assembler(bool replaces_each_byte) : replaces_each_byte_(replaces_each_byte) {}
  void add(std::string_view bytes, std::string& out);
  void flush(std::string& out);  // what is held cannot become whole any more
  bool is_holding() const { return !held_.empty(); }

 private:
  void replace(std::size_t bytes, std::string& out) const;

  bool replaces_each_byte_;
  std::string held_;  // the start of a character, at most 3 bytes
};

// One text being read. Cheap to make; belongs to one thread.
class TextReader {
 public:
  TextReader(const Vocab& vocab, const DecodeRules& rules);
  // Appends the text that is certain once `id` is known. Ids outside the vocabulary read as
  // nothing.
  void add(TokenId id, std::string& out);
  // The bytes that add(id) would take in here: the texts of all ids, each asked for before it is
  // added, are the bytes of the whole text.
  std::string bytes_of(TokenId id) const;
  void finish(std::string& out);

 private:
  int byte_of(std::string_view piece) const;        // -1 where it is text
  std::string spell(std::string_view piece) const;  // as text at this place
  std::string spell_wordpiece(std::string_view piece) const;
  void append_fused(std::string_view piece, std::string& out);
  void append_stripped(std::string_view text, std::string& out);

  const Vocab& vocab_;
  const DecodeRules& rules_;
  Utf8Assembler assembler_;
  std::size_t to_strip_;
  bool is_first_ = true;
};

}  // namespace llorch::tokenizer
