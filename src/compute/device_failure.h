// A device that breaks while it computes: nothing on it can be believed any more, and nothing else
// of the process can go on without it.
#pragma once

#include <string_view>

namespace llorch::compute {

// Ends the process at once, with exit code 1 and one line on stderr that names what was asked of
// the device and what it said. Whoever runs the process starts it anew, on a device in order.
[[noreturn]] void end_with_device_failure(std::string_view what, std::string_view said);

}  // namespace llorch::compute
