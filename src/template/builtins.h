// What templates find by name: filters, tests, methods of values, global functions.
#pragma once

#include <string_view>

#include "template/value.h"

namespace llorch::jinja {

struct NamedFunction {
  std::string_view name;
  NativeFunction function;
};

// Null where there is none of that name.
NativeFunction find_filter(std::string_view name);
NativeFunction find_test(std::string_view name);
const NamedFunction* find_method(const Value& object, std::string_view name);
const NamedFunction* find_global(std::string_view name);

// The filters are in three files by what they work on; each searches its own table.
NativeFunction find_text_filter(std::string_view name);
NativeFunction find_sequence_filter(std::string_view name);

}  // namespace llorch::jinja
