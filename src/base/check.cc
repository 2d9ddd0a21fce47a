#include "base/check.h"

#include <execinfo.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace llorch::base {

void check_failed(const char* condition, std::string_view note, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s%s%.*s\n", file, line, condition,
               note.empty() ? "" : ": ", static_cast<int>(note.size()), note.data());
  constexpr int kFramesMax = 64;
  void* frames[kFramesMax];
  backtrace_symbols_fd(frames, backtrace(frames, kFramesMax), STDERR_FILENO);
  std::abort();
}

}  // namespace llorch::base
