#include "support/run_program.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <utility>

#include "support/child_process.h"

namespace llorch::test {
namespace {

// Longer than any test may take: a program that hangs is the test's failure, not its end.
constexpr std::chrono::minutes kPatience{4};

}  // namespace

ProgramOutcome run_program(std::string program, std::vector<std::string> arguments,
                           std::vector<std::string> environment) {
  ChildProcess child(program, std::move(arguments), std::move(environment));
  const std::optional<int> exit_code = child.wait(kPatience);
  EXPECT_TRUE(exit_code) << program << " does not end; its stderr: " << child.err();
  return {exit_code.value_or(-1), child.out(), child.err()};
}

}  // namespace llorch::test
