// Python's two ways of formatting: "%s" % x and "{}".format(x).
#pragma once

#include <string_view>

#include "template/run.h"
#include "template/value.h"

namespace llorch::jinja {

Value brace_format(Run& run, const String& format, const CallArgs& args);

}  // namespace llorch::jinja
