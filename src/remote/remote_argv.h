// A command and its arguments on their way through other people's shells: written as one word of
// letters, digits, "-" and "_" that every shell passes on as it is, and read back at the other end.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::remote {

// What the other end executes. Texts are UTF-8 without NUL.
struct RemoteCommand {
  // The program first: a path, or a name that is looked for beside the other end's own programs
  // and then on its PATH.
  std::vector<std::string> words;
  std::vector<std::string> environment;  // "NAME=value", added to what is there

  friend bool operator==(const RemoteCommand&, const RemoteCommand&) = default;
};

// Linux takes no single argument of 128 KiB or more, and a login shell gets the whole line as one.
inline constexpr std::size_t kMaxEncodedBytes = 120 * 1024;

// [["program","argument",…],["NAME=value",…]] as JSON, as base64url. InvalidArgument, TooLarge.
Result<std::string> encode_remote(const RemoteCommand& command);
// InvalidArgument for anything that encode_remote does not write.
Result<RemoteCommand> decode_remote(std::string_view text);

}  // namespace llorch::remote
