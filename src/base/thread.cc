#include "base/thread.h"

#include <pthread.h>

#include <exception>

#include "base/job_border.h"
#include "base/log.h"

namespace llorch::base {
namespace {

constexpr std::size_t kNameBytesMax = 15;  // of the kernel

}  // namespace

void run_thread(const std::string& name, const std::function<void()>& body) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, kNameBytesMax).c_str());
  try {
    body();
  } catch (...) {
    const Error error = error_of_current_exception("at the top of a thread");
    Logger("base").error("a thread broke", {{"thread", name}, {"error", error.message}});
    std::terminate();
  }
}

}  // namespace llorch::base
