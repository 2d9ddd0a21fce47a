// The beginning of a tool call as models write it, up to its arguments. Private to openai/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "openai/answer_style.h"

namespace llorch::openai {

// What stands around the calls of a dialect.
struct CallSyntax {
  std::span<const std::string_view> openings;  // a call may follow
  std::span<const std::string_view> closings;  // after a call: of no further meaning
  bool is_bare = false;     // a bracket at the beginning of the answer may be a call, too
  bool has_fences = false;  // the openings count at the beginning of the answer only
};
CallSyntax call_syntax(ToolDialect dialect);

struct CallHead {
  enum class Status : std::uint8_t { Unfinished, NoCall, Call };
  enum class Arguments : std::uint8_t {
    Follow,  // as a JSON value that begins at `end`
    Known,   // they are `arguments`
    Xml,     // as <parameter=…> elements from `end` on
  };
  Status status = Status::NoCall;
  std::string name;  // with Unfinished where it has been read already
  std::size_t end = 0;
  Arguments kind = Arguments::Follow;
  std::string arguments;
  bool in_list = false;    // more calls may follow after a comma, then a bracket
  bool in_object = false;  // the rest of an object follows the arguments
};

// `text` is what follows `opening` (empty: a bare bracket, or the next of a list). What it says of
// a text it says of every longer one, unless it says Unfinished.
CallHead read_call_head(std::string_view text, ToolDialect dialect, std::string_view opening);

}  // namespace llorch::openai
