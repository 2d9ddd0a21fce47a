// Reading JSON Schemas: references, types, and whether two schemas exclude each other. Private.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace llorch::grammar {

// A schema within its document, and where it is: "#", "#/properties/name".
struct SchemaAt {
  const json::Value* value = nullptr;
  std::string pointer;
};

// An error that says where: "\"#/properties/a\": …".
Error error_at(ErrorCode code, const std::string& pointer, std::string_view what);

// Unsupported for a keyword that cannot be enforced, or not beside another one that is there.
Status check_keywords(const json::Object& schema, const std::string& pointer);

// Sets of JSON types.
enum TypeBit : std::uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,   // numbers without a fraction
  kFraction = 8,  // the other numbers
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAnyType = 127,
};
using TypeSet = std::uint8_t;

TypeSet type_of(const json::Value& value);

// "type" and "nullable" of a schema. Without "type" the keywords tell: "properties" describes an
// object, "items" an array, and so on; without those, any.
Result<TypeSet> types_of(const json::Object& schema, std::string_view pointer);

// "#/a/b": one more level, escaped as RFC 6901 has it. The middle of long ones is left out: they
// are for messages, and a schema must not make us keep more than it says.
std::string child_pointer(std::string_view pointer, std::string_view key);
std::string child_pointer(std::string_view pointer, std::size_t index);

inline constexpr std::size_t kMaxReferences = 100;  // one after the other

bool is_reference(const json::Value& schema);
// What "$ref" of `from` names: "#" and "#/…" in this document. Unsupported for others;
// InvalidArgument where there is nothing.
Result<SchemaAt> follow_reference(const json::Value& document, const SchemaAt& from);

// True only when no value is valid against both: they allow different types or different constants,
// or require the same property with such schemas. `budget` is what all questions of a document may
// cost, in values looked at; none is proved once it is spent.
bool are_disjoint(const json::Value& document, const json::Value& a, const json::Value& b,
                  std::int64_t& budget);
inline constexpr std::int64_t kDisjointBudget = 1'000'000;

}  // namespace llorch::grammar
