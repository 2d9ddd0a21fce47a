// Targets, queries and URLs from anywhere: no crash, and what is accepted survives a round trip.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "http/url.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace llorch::http;
  const std::string_view text(reinterpret_cast<const char*>(data), size);

  const auto decoded = percent_decode(text);
  if (decoded.ok()) {
    CHECK(decoded->size() <= text.size());
    // A raw NUL passes the decoder but not a second time, as %00.
    if (decoded->find('\0') == std::string::npos) {
      CHECK(percent_decode(percent_encode(*decoded)).take() == *decoded);
    }
  }
  if (const auto query = parse_query(text); query.ok()) {
    for (const auto& [name, value] : *query) CHECK(name.size() + value.size() <= text.size());
  }
  if (const auto target = parse_target(text); target.ok()) {
    CHECK(target->path.starts_with('/'));
    const auto again = parse_target(target->path);
    CHECK(again.ok() && again->segments == target->segments);
  }
  if (const auto url = parse_url(text); url.ok()) {
    CHECK(!url->host.empty() && url->port != 0 && url->target.starts_with('/'));
    const auto again = parse_url("http://" + url->authority() + url->target);
    CHECK(again.ok() && again->host == url->host && again->target == url->target);
  }
  return 0;
}
