// The bearer token of a server or for one, from its file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::contract {

// InvalidArgument for what cannot be a token: line ends and other control characters, which would
// forge headers, and bytes that are not ASCII. The message does not show it.
Status check_api_token(std::string_view token);

// The file's text without the white space around it. InvalidArgument when that is too short to be
// a token (kApiTokenBytesMin), or cannot be one. An empty path is no token: an empty text.
Result<std::string> read_api_token(const std::filesystem::path& file);

}  // namespace llorch::contract
