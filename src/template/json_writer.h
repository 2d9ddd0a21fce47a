// tojson: what Python's json.dumps writes for a value.
#pragma once

#include <optional>
#include <string>

#include "template/run.h"
#include "template/value.h"

namespace llorch::jinja {

struct JsonStyle {
  std::optional<std::string> indent;  // absent: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ascii_only = false;
  bool sorts_keys = false;
};

// A failure where the value has no JSON form.
std::string write_json(Run& run, const Value& value, const JsonStyle& style);

}  // namespace llorch::jinja
