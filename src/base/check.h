// Broken invariants: CHECK (always) and DCHECK (debug builds) print what broke and abort.
// Never for anything that user input can cause: that is a Result.
#pragma once

#include <string_view>

namespace llorch::base {

[[noreturn]] void check_failed(const char* condition, std::string_view note, const char* file,
                               int line);

}  // namespace llorch::base

// CHECK(condition) or CHECK(condition, text): the text is evaluated only on failure.
#define CHECK(condition, ...)                                                             \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::llorch::base::check_failed(#condition, ::std::string_view{__VA_ARGS__}, __FILE__, \
                                   __LINE__);                                             \
  } while (false)

#ifdef LLORCH_DCHECK_ENABLED
#define DCHECK(condition, ...) CHECK(condition __VA_OPT__(, ) __VA_ARGS__)
#else
#define DCHECK(condition, ...)                              \
  do {                                                      \
    if (false) CHECK(condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
#endif
