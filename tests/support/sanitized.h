// Whether a sanitizer watches: it keeps shadows and quarantines that nobody plans, and takes its
// time.
#pragma once

namespace llorch::test {

constexpr bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

}  // namespace llorch::test
