// Python's operators on values.
#pragma once

#include "template/ast.h"
#include "template/run.h"
#include "template/value.h"

namespace llorch::jinja {

// Arithmetic: Add to Power.
Value apply(Run& run, Operator op, const Value& a, const Value& b);
// Comparison: Equal to NotIn.
bool compare(Run& run, Operator op, const Value& a, const Value& b);
Value negate(Run& run, const Value& value);
// object[start:stop:step]; absent bounds are None.
Value slice(Run& run, const Value& object, const Value& start, const Value& stop,
            const Value& step);

// `format % arguments`, Python's printf.
Value percent_format(Run& run, const String& format, const Value& arguments);

}  // namespace llorch::jinja
