// Which bytes may come next in a JSON text that must be an object, or must follow a JSON Schema.
// Bytes only: token_mask.h lifts this to a tokenizer's ids. README.md has the table of keywords.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace llorch::grammar {

// The bounds of a grammar and of what it lets through.
inline constexpr std::size_t kMaxNesting = 64;         // arrays and objects within each other
inline constexpr std::size_t kMaxIndent = 64;          // spaces and tabs after a newline
inline constexpr std::size_t kMaxNodes = 200'000;      // of the automaton
inline constexpr std::size_t kMaxEnumValues = 10'000;  // of one enum
inline constexpr std::size_t kMaxNameBytes = 1'000;    // of a property
inline constexpr std::size_t kMaxSchemas = 20'000;     // subschemas of one schema
inline constexpr std::size_t kMaxAlternatives = 100;   // of one anyOf; optional properties in a row
inline constexpr std::int64_t kMaxCount = 1'000'000'000;  // of minItems, maxLength and the like
inline constexpr std::size_t kMaxReadings = 128;          // of one text, kept at once

// A compiled grammar: immutable, shared by threads and generations.
class JsonGrammar;

// Any JSON object (RFC 8259).
Result<std::shared_ptr<const JsonGrammar>> compile_json_object();

// Every text it lets through is valid against `schema`; not every valid text can be written (the
// order of properties, for one, is the schema's). Errors name the keyword and its JSON pointer:
// Unsupported for a keyword that cannot be enforced, InvalidArgument for a schema that is malformed
// or that no finite text satisfies, TooLarge beyond the bounds above.
Result<std::shared_ptr<const JsonGrammar>> compile_json_schema(const json::Value& schema);

// A value that follows `schema`, with text around it that is always the same.
struct FramedSchema {
  std::string before;  // this, `after` and a frame's texts: any bytes
  json::Value schema;
  std::string after;
};

// One of `values`; then, where `between` is not empty, `between` and one of them again, until there
// are `max_values`; then `closing`. Errors as above, those of a schema with the place of its value
// in the list. InvalidArgument without values, and where a text is longer than kMaxFrameBytes.
struct FramedGrammar {
  std::vector<FramedSchema> values;
  std::string between;
  std::string closing;
  std::uint32_t max_values = 1;  // at least 1
};
inline constexpr std::size_t kMaxFrameBytes = 1'000;
Result<std::shared_ptr<const JsonGrammar>> compile_framed(const FramedGrammar& frame);

// A reading of the text so far: where it stands in a rule, how often that rule has counted, and
// which rules wait for it. Readings share the tails of their stacks.
struct Reading {
  std::uint32_t node = 0;
  std::uint32_t count = 0;
  std::int32_t stack = -1;  // into the frames; -1: nobody waits
  bool operator==(const Reading&) const = default;
};
struct Frame {
  std::uint32_t node = 0;  // where the waiting rule goes on
  std::uint32_t count = 0;
  std::int32_t parent = -1;
  std::int32_t depth = 0;  // frames below and including this one
  bool operator==(const Frame&) const = default;
};

// One text being written. Cheap to copy (a few hundred bytes); belongs to one thread.
//
// From every state that advance() reaches some continuation completes the text. Where a schema is
// so ambiguous that more than kMaxReadings readings of the text exist, the later ones are
// forgotten: some texts can then no longer be written, and still none that is invalid.
class JsonState {
 public:
  explicit JsonState(std::shared_ptr<const JsonGrammar> grammar);

  // False, and nothing changes, when `byte` may not come next.
  bool advance(std::uint8_t byte);
  // All of the bytes or none.
  bool advance(std::string_view bytes);
  // The text so far is a whole document. More may still be allowed (digits of a number).
  bool is_complete() const { return is_complete_; }

 private:
  friend class TokenMasker;

  std::shared_ptr<const JsonGrammar> grammar_;
  std::vector<Reading> readings_;
  std::vector<Frame> frames_;
  bool is_complete_ = false;
};

}  // namespace llorch::grammar
