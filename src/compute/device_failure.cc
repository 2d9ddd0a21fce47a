#include "compute/device_failure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace llorch::compute {

void end_with_device_failure(std::string_view what, std::string_view said) {
  const std::string line = fmt::format(
      "the device failed: {}: {}; this process ends, a new one may find it in order\n", what, said);
  // In one piece, whatever other threads are writing.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  // Destructors would ask the device again.
  std::_Exit(EXIT_FAILURE);
}

}  // namespace llorch::compute
