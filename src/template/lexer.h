// Template source to tokens, with Jinja's whitespace rules: trim_blocks and lstrip_blocks are on,
// one trailing newline is dropped, and line ends become '\n'.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "template/value.h"

namespace llorch::jinja {

enum class TokenKind : std::uint8_t {
  Data,
  VariableBegin,
  VariableEnd,
  BlockBegin,
  BlockEnd,
  Name,
  String,
  Integer,
  Real,
  Operator,
  End,
};

struct Token {
  TokenKind kind = TokenKind::End;
  int line = 0;
  std::string text;  // data, name, the string's value, or the operator's characters
  Int integer = 0;
  double real = 0;
};

// Ends with an End token. Corrupt where the source is no template.
Result<std::vector<Token>> tokenize(std::string_view source);

// "template line 3: what"
Error template_error(ErrorCode code, int line, std::string_view what);

}  // namespace llorch::jinja
