// The bearer token of a server or for one, from its file.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"

namespace llorch::contract {

// The file's text without the white space around it. InvalidArgument when that is too short to be
// a token (kApiTokenBytesMin). An empty path is no token: an empty text.
Result<std::string> read_api_token(const std::filesystem::path& file);

}  // namespace llorch::contract
