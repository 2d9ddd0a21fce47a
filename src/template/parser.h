// Tokens to a Program. The grammar is Jinja's with loop controls and generation blocks; what loads
// another template or changes escaping is refused by name.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "template/ast.h"

namespace llorch::jinja {

// Corrupt: a syntax error, with its line. Unsupported: a tag that we do not do. TooLarge: nested or
// long beyond the bounds that keep every recursion over the program short.
Result<std::shared_ptr<const Program>> parse_program(std::string_view source);

}  // namespace llorch::jinja
