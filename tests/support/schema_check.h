// For tests only: holds JSON values against the schemas of an OpenAPI document. Knows the keywords
// that our document uses and fails on any other.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace llorch::test {

// What is wrong with `value`, each with its place; nothing when it fits.
std::vector<std::string> check_schema(const json::Object& document, const json::Value& schema,
                                      const json::Value& value, const std::string& where = "$");

// The schema of that name under components.
std::vector<std::string> check_named(const json::Object& document, std::string_view name,
                                     const json::Value& value);

}  // namespace llorch::test
