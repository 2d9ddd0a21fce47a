// What a server's answer says, and how it is told to people. Pure. Private to fetch/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace llorch::fetch {

using HeaderFields = std::vector<std::pair<std::string, std::string>>;

// The head of an answer that is not a redirect.
struct FetchHead {
  int status = 0;
  std::string url;      // that answered, behind all redirects
  HeaderFields fields;  // names in lower case

  std::string_view find(std::string_view name) const;  // empty: not there
  std::optional<std::int64_t> content_length() const;
  void add_field(std::string_view line);  // "Name: value"; other lines are left out
};

// "bytes 0-99/1234"; a total of "*" is not known.
struct ContentRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::optional<std::int64_t> total;
};
std::optional<ContentRange> parse_content_range(std::string_view text);

// The status of "HTTP/1.1 206 Partial Content"; 0: it has none.
int parse_status_line(std::string_view line);

// "https://host/path" without the query, which may hold a signature.
std::string shown_url(std::string_view url);
// "https://host:443"; empty when it is not an http or https URL.
std::string origin_of(const std::string& url);

// "host" or "host:port", as the URL has it; for people.
std::string host_of(const std::string& url);

// Why a redirect is not followed, empty when it is: only to http and https, and never from https to
// http.
std::string redirect_problem(const std::string& from, const std::string& to);
// Unauthorized, Forbidden, NotFound or Unavailable: what the server said, in one sentence.
Error status_error(const FetchHead& head, std::string_view body);

// The same of a host that `asked` redirected to, and what to do about it: such addresses are signed
// and live for a while only, so no token and no permission of ours is the reason.
Error refused_elsewhere(const std::string& asked, const FetchHead& head, std::string_view body);

}  // namespace llorch::fetch
