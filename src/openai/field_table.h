// The fields of each request body, one table per endpoint: the parsers refuse and ignore by it, and
// /openapi.json is written from it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/json.h"
#include "base/json_fields.h"

namespace llorch::openai {

enum class Treatment : std::uint8_t {
  Required,     // honoured, and must be there
  Honoured,     // does what it says
  Bookkeeping,  // accepted; changes nothing about the answer
  Refused,      // would change the answer and is not done here: only its neutral value is accepted
};

struct FieldSpec {
  std::string_view name;
  Treatment treatment;
  std::string_view schema;  // JSON Schema, as text; empty: settings_schema() has it, or anything
  std::string_view neutral = {};  // with Refused: the value, beside null, that asks for nothing
  std::string_view instead = {};  // with Refused: the field that does the same
};

// Every field of OpenAI's request schemas is in one of these.
std::span<const FieldSpec> completion_fields();
std::span<const FieldSpec> chat_fields();
std::span<const FieldSpec> chat_message_fields();
std::span<const FieldSpec> embedding_fields();

// Bookkeeping fields are known and not looked at; a refused field with a value that asks for
// something is a failure that says so. Those honoured are left to the caller.
void apply_treatments(std::span<const FieldSpec> fields, const json::Object& object,
                      json::FieldReader& reader);

}  // namespace llorch::openai
