// Waiting for what another thread or process will bring about.
#pragma once

#include <chrono>
#include <functional>

namespace llorch::test {

// Looks again and again until the condition holds; false after a time that is long even on a busy
// machine.
bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds patience = std::chrono::seconds(60));

}  // namespace llorch::test
