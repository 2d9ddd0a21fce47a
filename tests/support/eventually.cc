#include "support/eventually.h"

#include <thread>

namespace llorch::test {

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace llorch::test
