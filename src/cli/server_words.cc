#include "cli/server_words.h"

#include <cstddef>

#include "base/file.h"
#include "contract/api_token.h"
#include "http/url.h"

namespace llorch::cli {
namespace {

constexpr std::size_t kCaBytesMax = std::size_t{16} << 20;

}  // namespace

std::string text_of(const base::Environment& environment, const char* name) {
  const char* value = environment(name);
  return value != nullptr ? value : "";
}

Status complete_server_words(const base::Environment& environment, const char* url_variable,
                             const ServerWords& words) {
  if (words.url.empty()) {
    words.url = text_of(environment, url_variable);
    const Result<http::Url> url = http::parse_url(words.url);
    if (!words.url.empty() && !url.ok()) return url.error().in(url_variable);
  }
  const bool is_flag = !words.ca_file.empty();
  if (!is_flag) words.ca_file = text_of(environment, "LLORCH_CA_FILE");
  if (!words.ca_file.empty()) {
    const Result<std::string> text = base::read_text_file(words.ca_file, kCaBytesMax);
    if (!text.ok()) return text.error().in(is_flag ? "--ca-file" : "LLORCH_CA_FILE");
  }
  if (words.token.empty()) words.token = text_of(environment, "LLORCH_TOKEN");
  if (const Status good = contract::check_api_token(words.token); !good.ok())
    return good.error().in("LLORCH_TOKEN");
  return ok_status();
}

}  // namespace llorch::cli
