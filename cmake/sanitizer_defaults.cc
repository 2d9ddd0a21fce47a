// What a sanitizer may not take for a fault in our programs. Linked into them in its build only.
#include <sys/prctl.h>

extern "C" {

// A file that shrinks under a mapping is a SIGBUS that ends the child which looks into it:
// expected.
const char* __asan_default_options();
[[gnu::weak]] const char* __asan_default_options() {  // a program may know better
  return "handle_sigbus=0";
}

const char* __tsan_default_options();
const char* __tsan_default_options() {
  return "handle_sigbus=0";
}

// libedit keeps the name and the words of a function that is bound to a key until the process ends.
const char* __lsan_default_suppressions();
const char* __lsan_default_suppressions() {
  return "leak:wcsdup\n";
}

// The search for leaks traces the process, which a confined worker does not let anybody do.
int __lsan_is_turned_off();
int __lsan_is_turned_off() {
  return ::prctl(PR_GET_DUMPABLE) != 1 || ::prctl(PR_GET_SECCOMP) != 0;
}
}
