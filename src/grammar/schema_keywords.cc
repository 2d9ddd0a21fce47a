// Which keywords of a schema can be enforced, and beside which others.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/utf8.h"
#include "grammar/schema.h"

namespace llorch::grammar {
namespace {

using KeywordList = std::span<const std::string_view>;

// What says something about a schema and asks for nothing.
constexpr std::string_view kAnnotations[] = {
    "title",    "description", "default",  "examples",        "$comment",
    "readOnly", "writeOnly",   "$schema",  "deprecated",      "format",
    "$defs",    "definitions", "nullable", "contentEncoding", "contentMediaType"};
// Each of these decides alone.
constexpr std::string_view kDeciders[] = {"$ref", "anyOf", "oneOf", "allOf", "enum", "const"};
constexpr std::string_view kConstraints[] = {
    "type",      "properties",       "required",         "additionalProperties",
    "items",     "minItems",         "maxItems",         "minLength",
    "maxLength", "pattern",          "prefixItems",      "minimum",
    "maximum",   "exclusiveMinimum", "exclusiveMaximum", "uniqueItems"};

bool contains(KeywordList list, std::string_view keyword) {
  return std::find(list.begin(), list.end(), keyword) != list.end();
}

}  // namespace

Error error_at(ErrorCode code, const std::string& pointer, std::string_view what) {
  return {code, fmt::format("{}: {}", base::quoted(pointer), what)};
}

Status check_keywords(const json::Object& schema, const std::string& pointer) {
  std::string_view decider;
  for (const auto& member : schema) {
    const std::string_view keyword = json::view(member.key());
    if (contains(kDeciders, keyword)) {
      if (!decider.empty()) {
        return error_at(ErrorCode::Unsupported, child_pointer(pointer, keyword),
                        fmt::format("cannot be enforced beside \"{}\"", decider));
      }
      decider = keyword;
    }
  }
  const bool is_constant = decider == "enum" || decider == "const";
  for (const auto& member : schema) {
    const std::string_view keyword = json::view(member.key());
    if (contains(kAnnotations, keyword) || keyword == decider) continue;
    if (keyword == "$id" && pointer == "#") continue;
    const std::string at = child_pointer(pointer, keyword);
    if (!contains(kConstraints, keyword)) {
      return error_at(ErrorCode::Unsupported, at,
                      "this keyword cannot be enforced; remove it (the module's README lists those "
                      "that can)");
    }
    if (!decider.empty() && !(is_constant && keyword == "type")) {
      return error_at(ErrorCode::Unsupported, at,
                      fmt::format("cannot be enforced beside \"{}\"", decider));
    }
    if (keyword == "uniqueItems" && !(member.value().is_bool() && !member.value().get_bool())) {
      return error_at(ErrorCode::Unsupported, at, "only false can be enforced");
    }
  }
  if (schema.contains("nullable") && !schema.contains("type")) {
    return error_at(ErrorCode::Unsupported, child_pointer(pointer, "nullable"),
                    "only has a meaning beside \"type\"; use \"anyOf\" with {\"type\":\"null\"}");
  }
  return ok_status();
}

}  // namespace llorch::grammar
