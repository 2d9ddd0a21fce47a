#include "contract/api_token.h"

#include <fmt/format.h>

#include "base/file.h"
#include "contract/limits.h"

namespace llorch::contract {

Status check_api_token(std::string_view token) {
  for (std::size_t i = 0; i < token.size(); ++i) {
    if (token[i] > 0x20 && token[i] < 0x7F) continue;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("byte {} of the token's {} is {:#04x}: expected printable ASCII "
                             "without spaces and line ends, on one line",
                             i, token.size(), static_cast<unsigned char>(token[i]))};
  }
  return ok_status();
}

Result<std::string> read_api_token(const std::filesystem::path& file) {
  constexpr std::size_t kTokenBytesMax = 4096;
  if (file.empty()) return std::string();
  const Result<std::string> text = base::read_text_file(file, kTokenBytesMax);
  if (!text.ok()) return text.error();
  const std::size_t from = text->find_first_not_of(" \t\r\n");
  const std::size_t to = text->find_last_not_of(" \t\r\n");
  std::string token = from == std::string::npos ? "" : text->substr(from, to - from + 1);
  if (const Status good = check_api_token(token); !good.ok()) return good.error().in(file.string());
  if (token.size() >= kApiTokenBytesMin) return token;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{}: the token has {} characters, expected at least {}", file.string(),
                           token.size(), kApiTokenBytesMin)};
}

}  // namespace llorch::contract
